"use strict";
// What the app's pages do in the browser beside drawing: forms that become addresses, links into a page, copying.
(() => {
  let known = null;

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    orchestrate: {
      title(title) {
        if (!title) return window.dash_clientside.no_update;
        document.title = `${title} · orchestrate`;
        return title;
      },

      // Shows the page again when the runs have changed since it was shown first.
      changed(state) {
        if (state && known && state !== known) window.dash_clientside.set_props("again", { data: state });
        known = state ?? known;
        return window.dash_clientside.no_update;
      },
    },
  });

  // The page is made after its address was read, so the browser has not found the place that #name means.
  let anchored = "";
  new MutationObserver(() => {
    refocus();
    const where = location.pathname + location.hash;
    if (!location.hash || where === anchored) return;
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target) { anchored = where; target.scrollIntoView(); }
  }).observe(document, { childList: true, subtree: true });

  // A view of the same page: it is made anew, but the reader stays where they are, the keyboard's focus too.
  let focused = null;
  const go = (address) => {
    const { activeElement: at } = document;
    focused = at?.id ? `#${CSS.escape(at.id)}` : at?.matches("a.stays") ? at.textContent : null;
    window.history.pushState({}, "", address);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  };
  const refocus = () => {
    if (!focused || document.activeElement !== document.body) return;
    const links = [...document.querySelectorAll("a.stays")];
    const again = focused[0] === "#" ? document.querySelector(focused) : links.find((a) => a.textContent === focused);
    again?.focus({ preventScroll: true });
    focused = null;
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.stays");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(link.href);
  });

  // Forms become addresses: a view that was chosen can be linked to.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("form.navigates")) return;
    event.preventDefault();
    const query = new URLSearchParams(JSON.parse(form.dataset.keep ?? "{}"));
    for (const [key, value] of new FormData(form)) {
      if (value) query.set(key, value); else query.delete(key);
    }
    const search = query.toString();
    const place = new URL(form.action, location.href);
    go(place.pathname + (search ? `?${search}` : ""));
  });
  document.addEventListener("change", (event) => {
    const form = event.target.closest?.("form.instant");
    if (form && event.target.matches("select")) form.requestSubmit();
  });

  // Copies the code beside the button. Where the browser lends no clipboard (plain HTTP from afar) it is selected.
  document.addEventListener("click", async (event) => {
    const box = event.target.closest?.("button.copy")?.closest(".command");
    if (!box) return;
    const code = box.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      box.querySelector("[role=status]").textContent = "Copied.";
    } catch {
      window.getSelection().selectAllChildren(code);
      box.querySelector("[role=status]").textContent = "Selected; your browser copies it by its own command.";
    }
  });
})();
