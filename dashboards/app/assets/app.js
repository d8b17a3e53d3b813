"use strict";
// What the browser does by itself: draw figures in the reader's scheme, follow forms without loading a page, copy.
(() => {
  const NARROW = 460;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const none = () => window.dash_clientside.no_update;

  const recolour = (value, exchange) => {
    if (typeof value === "string") return exchange[value] ?? value;
    if (Array.isArray(value)) return value.map((item) => recolour(item, exchange));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, recolour(item, exchange)]));
    }
    return value;
  };

  const merge = (base, change) => {
    const merged = { ...base };
    for (const [key, value] of Object.entries(change)) {
      const nested = value && typeof value === "object" && !Array.isArray(value);
      merged[key] = nested ? merge(base[key] ?? {}, value) : value;
    }
    return merged;
  };

  const element = (key) => document.querySelector(`.plot[data-key="${CSS.escape(key)}"]`);

  // Plotly writes into what it is given, so it gets a copy.
  const drawn = (figure, width) => {
    const { meta } = figure.layout;
    const layout = width < NARROW ? merge(figure.layout, meta.narrow) : figure.layout;
    const shown = { data: figure.data, layout };
    const coloured = dark.matches ? recolour(shown, { ...meta.dark }) : shown;
    return structuredClone(coloured);
  };

  const line = (at) => ({
    type: "line", x0: at, x1: at, y0: 0, y1: 1, yref: "paper", editable: true,
    line: { color: dark.matches ? "#e7eaef" : "#1b1f27", width: 3, dash: "dot" },
  });

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    orchestrate: {
      draw(near, _view, figure, id) {
        const place = element(id.key);
        if (!near || !figure || !place) return [none(), none()];
        const shown = drawn(figure, place.clientWidth);
        if (id.key === "goodput") {
          const slider = document.getElementById("slo");
          if (slider) shown.layout.shapes = [line(Number(slider.value))];
        }
        return [shown, { height: `${shown.layout.height}px` }];
      },

      // Moves the line and reads each arm's curve at the limit.
      goodput(limit, _figure, figure) {
        if (!figure || limit === null || limit === undefined) return none();
        const at = Number(limit);
        const plot = element("goodput")?.querySelector(".js-plotly-plot");
        if (plot?.layout && plot.data?.length && plot.layout.shapes?.[0]?.x0 !== at) {
          window.Plotly.relayout(plot, { shapes: [line(at)] });
        }
        const rows = figure.data.map((curve) => ({ name: curve.name, rps: valueAt(curve, at) }));
        rows.sort((a, b) => b.rps - a.rps);
        const told = rows.map((row) => `${text(row.name)} ${row.rps.toFixed(2)}`).join(" · ");
        return `Within ${at} ms, requests/s: ${told}`;
      },

      dragged(change) {
        const x = change?.["shapes[0].x0"];
        const slider = document.getElementById("slo");
        if (x === undefined || !slider) return none();
        const inside = Math.min(Math.max(x, 0), Number(slider.max));
        return Math.round(inside * 10) / 10;
      },

      title(title) {
        if (!title) return none();
        document.title = `${title} · orchestrate`;
        return title;
      },
    },
  });

  // The stored curve's last point within the limit: a step, as the counts behind it are.
  const valueAt = (curve, limit) => {
    let value = 0;
    curve.x.forEach((x, index) => { if (x <= limit) value = curve.y[index]; });
    return value;
  };

  // A label escaped for Plotly as the text it stands for.
  const text = (label) => new DOMParser().parseFromString(label, "text/html").documentElement.textContent;

  // A figure is drawn when it is about to come into view.
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      window.dash_clientside.set_props({ type: "near", key: entry.target.dataset.key }, { data: true });
    }
  }, { rootMargin: "600px" });

  const watch = () => {
    for (const plot of document.querySelectorAll(".plot:not([data-watched])")) {
      plot.dataset.watched = "";
      seen.observe(plot);
    }
  };

  let anchored = "";
  const follow = () => {
    watch();
    // The page is made after its address was read, so the browser has not found the place that #name means.
    const where = location.pathname + location.hash;
    if (location.hash && where !== anchored) {
      const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (target) { anchored = where; target.scrollIntoView(); }
    }
  };
  new MutationObserver(follow).observe(document, { childList: true, subtree: true });

  let width = window.innerWidth;
  const redraw = () => window.dash_clientside.set_props("view", { data: { dark: dark.matches, width } });
  dark.addEventListener("change", redraw);
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (window.innerWidth !== width) { width = window.innerWidth; redraw(); }
    }, 150);
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
    window.history.pushState({}, "", place.pathname + (search ? `?${search}` : ""));
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  });
  document.addEventListener("change", (event) => {
    const form = event.target.closest?.("form.instant");
    if (form && event.target.matches("select")) form.requestSubmit();
  });
})();
