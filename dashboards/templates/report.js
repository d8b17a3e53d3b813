"use strict";
// Draws every figure of the page, in the reader's colour scheme and to the width there is.
(() => {
  const NARROW = 460;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { displayModeBar: false };

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

  const draw = (plot, figure) => {
    const meta = figure.layout.meta;
    const narrow = plot.clientWidth < NARROW;
    const layout = narrow ? merge(figure.layout, meta.narrow) : figure.layout;
    const shown = dark.matches ? recolour({ data: figure.data, layout }, meta.dark) : { data: figure.data, layout };
    // Plotly writes into what it is given; the figure is drawn again when the scheme or the width changes.
    const copy = structuredClone(shown);
    plot.style.minHeight = `${layout.height}px`;
    Plotly.react(plot, copy.data, copy.layout, config);
  };

  for (const plot of document.querySelectorAll(".plot")) {
    const figure = JSON.parse(document.getElementById(plot.dataset.figure).textContent);
    let width = 0;
    const follow = () => {
      if (plot.clientWidth !== width) {
        width = plot.clientWidth;
        draw(plot, figure);
      }
    };
    follow();
    dark.addEventListener("change", () => draw(plot, figure));
    new ResizeObserver(() => requestAnimationFrame(follow)).observe(plot);
  }
})();
