"use strict";
// Draws the figures of a page, in the reader's colour scheme and to the width there is. Report and app share this file.
// A place to draw in is `.drawing`: its figure stands in data-figure, or in the element that data-source names.
(() => {
  const NARROW = 460;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const states = new Map();

  // Own properties only: a label of a run may be the name of something that every object has.
  const recolour = (value, exchange) => {
    if (typeof value === "string") return Object.hasOwn(exchange, value) ? exchange[value] : value;
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

  // A copy, because Plotly writes into what it is given.
  const drawn = (figure, width) => {
    const { meta } = figure.layout;
    const layout = width < NARROW ? merge(figure.layout, meta.narrow) : figure.layout;
    // Plotly keeps the width that it first found where it is told none.
    const shown = { data: figure.data, layout: { ...layout, width } };
    return structuredClone(dark.matches ? recolour(shown, meta.dark) : shown);
  };

  // A label escaped for Plotly as the text it stands for.
  const plain = (label) => new DOMParser().parseFromString(label, "text/html").documentElement.textContent;

  // The stored curve's last point within the limit: a step, as the counts behind it are.
  const reached = (curve, limit) => {
    let value = 0;
    curve.x.forEach((x, index) => { if (x <= limit) value = curve.y[index]; });
    return value;
  };

  // What a slider under a figure does to it, and what it says about its value.
  const SLIDERS = {
    // A line that can also be dragged.
    limit: {
      change(shown, value) {
        const color = dark.matches ? "#e7eaef" : "#1b1f27";
        const line = { type: "line", x0: value, x1: value, y0: 0, y1: 1, yref: "paper", editable: true };
        shown.layout.shapes = [{ ...line, line: { color, width: 3, dash: "dot" } }];
      },
      say(figure, value) {
        const rows = figure.data.map((curve) => ({ name: plain(curve.name), y: reached(curve, value) }));
        rows.sort((a, b) => b.y - a.y);
        return `Within ${value} ms, requests/s: ${rows.map((row) => `${row.name} ${row.y.toFixed(2)}`).join(" · ")}`;
      },
    },
    // Nodes after the first `value` are taken away; each point's customdata is its node.
    budget: {
      change(shown, value) {
        for (const trace of shown.data.filter((item) => item.meta === "prunable")) {
          const kept = trace.customdata.map((node) => node <= value);
          const prune = (list) => list.filter((_, index) => kept[index]);
          for (const key of ["x", "y", "text", "hovertext", "customdata"]) if (trace[key]) trace[key] = prune(trace[key]);
          if (Array.isArray(trace.marker?.size)) trace.marker.size = prune(trace.marker.size);
        }
      },
      say: (figure, value) => figure.layout.meta.slider.says[value],
    },
  };

  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

  const draw = (state) => {
    const { figure, plot, input } = state;
    const shown = drawn(figure, plot.clientWidth);
    const kind = SLIDERS[figure.layout.meta.slider?.kind];
    if (kind) {
      kind.change(shown, Number(input.value));
      state.status.textContent = kind.say(figure, Number(input.value));
    }
    plot.style.height = `${shown.layout.height}px`;
    const edits = { shapePosition: figure.layout.meta.slider?.kind === "limit" };
    window.Plotly.react(plot, shown.data, shown.layout, { displayModeBar: false, edits });
    if (!state.heard) plot.on("plotly_relayout", (change) => dragged(state, change["shapes[0].x0"]));
    state.heard = true;
  };

  const dragged = (state, x) => {
    if (x === undefined) return;
    state.input.value = Math.min(Math.max(x, 0), Number(state.input.max)).toFixed(1);
    draw(state);
  };

  const addSlider = (state, place, { label, most, step, value }) => {
    const id = `slider-${place.dataset.key}`;
    state.input = make("input", { type: "range", id, min: 0, max: most, step, value });
    state.status = make("output", { className: "told", htmlFor: id });
    const row = make("div", { className: "slider" });
    row.append(make("label", { htmlFor: id, textContent: label }), state.input, state.status);
    place.append(row);
    state.input.addEventListener("input", () => draw(state));
  };

  // The app's pages fetch Plotly with their first figure; a report carries it.
  const source = document.querySelector("meta[name=plotly]")?.content;
  let loading = null;
  const plotly = () => {
    loading ??= window.Plotly ? Promise.resolve() : new Promise((done) => {
      document.head.append(make("script", { src: source, onload: done }));
    });
    return loading;
  };

  const resized = new ResizeObserver((entries) => requestAnimationFrame(() => {
    for (const { target } of entries) {
      const state = states.get(target.parentElement);
      if (state && state.width !== target.clientWidth) {
        state.width = target.clientWidth;
        draw(state);
      }
    }
  }));

  const begin = (place) => plotly().then(() => {
    const state = states.get(place);
    if (state && !state.width && place.isConnected) resized.observe(state.plot);
  });

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((item) => item.isIntersecting)) {
      seen.unobserve(entry.target);
      begin(entry.target);
    }
  }, { rootMargin: "600px" });

  const setUp = (place, json) => {
    const figure = JSON.parse(json);
    const plot = make("div", { className: "plot" });
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", place.dataset.label);
    const state = { json, figure, plot, width: 0, heard: false };
    plot.style.height = `${figure.layout.height}px`;
    place.replaceChildren(plot);
    if (figure.layout.meta.slider) addSlider(state, place, figure.layout.meta.slider);
    states.set(place, state);
    if (source) seen.observe(place); else begin(place);
  };

  const tearDown = (place) => {
    const { plot } = states.get(place);
    resized.unobserve(plot);
    seen.unobserve(place);
    window.Plotly?.purge(plot);
    states.delete(place);
  };

  // A page may come, go, or put another figure into the same place.
  const follow = () => {
    for (const place of [...states.keys()].filter((item) => !item.isConnected)) tearDown(place);
    for (const place of document.querySelectorAll(".drawing")) {
      const json = place.dataset.figure ?? document.getElementById(place.dataset.source).textContent;
      const before = states.get(place);
      if (before?.json === json) continue;
      if (before) tearDown(place);
      setUp(place, json);
    }
  };
  const options = { childList: true, subtree: true, attributes: true, attributeFilter: ["data-figure"] };
  new MutationObserver(follow).observe(document, options);
  dark.addEventListener("change", () => { for (const state of states.values()) if (state.width) draw(state); });
  follow();
})();
