// Plots of the last minutes, drawn as SVG.

import { h, s } from "/console/dom.js";

const HEIGHT = 150;
const LEFT = 4;
const BOTTOM = 18;
const SPAN_MS = 600000;
let made = 0;

// The top of the scale: a round number, in the unit in which it is written.
function scaleOf(highest, isBytes) {
  if (highest <= 0) return 1;
  const unit = isBytes ? 1024 ** Math.floor(Math.log(Math.max(1, highest)) / Math.log(1024)) : 1;
  const power = 10 ** Math.floor(Math.log10(highest / unit));
  return [1, 2, 4, 5, 10].map((step) => step * power * unit).find((top) => top >= highest);
}

// `series`: [{name, class, of(point)}]; `format` makes texts of values, which may be bytes.
export function plot(title, series, format, isBytes) {
  let width = 560;
  const number = ++made;
  const lines = series.map((one) => s("path", { class: `line ${one.class}` }));
  // Under the first alone: two of them would mix into a third colour.
  const area = s("path", { fill: `url(#fade${number})` });
  const grid = [0, 0.5, 1].map((part) => {
    const y = (HEIGHT - BOTTOM) * (1 - part * 0.88);
    return [s("line", { class: "grid", x1: LEFT, y1: y, y2: y }), s("text", { y: y - 4, "text-anchor": "end" }), part];
  });
  const cursor = s("line", { class: "cursor", y1: 8, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const dots = series.map((one) => s("circle", { class: `dot ${one.class}`, r: 3.5, visibility: "hidden" }));
  const fade = s(
    "linearGradient",
    { id: `fade${number}`, x1: 0, y1: 0, x2: 0, y2: 1, class: series[0].class },
    s("stop", { offset: "0", "stop-color": "currentColor", "stop-opacity": "0.24" }),
    s("stop", { offset: "1", "stop-color": "currentColor", "stop-opacity": "0" }),
  );
  const labels = series.map(() => h("b", null, "–"));
  const when = h("span", { class: "when" });
  const end = s("text", { y: HEIGHT - 4, "text-anchor": "end" }, "now");
  const image = s(
    "svg",
    { role: "img", "aria-label": title },
    s("defs", null, fade),
    grid.map(([line]) => line),
    area,
    lines,
    grid.map(([, text]) => text),
    cursor,
    dots,
    s("text", { x: LEFT, y: HEIGHT - 4 }, "10 min ago"),
    end,
  );
  const element = h(
    "section",
    { class: "card plot" },
    h("header", null, h("h2", null, title), when,
      h("div", { class: "legend" }, series.map((one, at) => h("span", { class: one.class }, h("i"), one.name, " ", labels[at])))),
    image,
  );
  let points = [];
  let now = 0;
  let top = 1;
  const xOf = (point) => width - ((now - point.at_ms) / SPAN_MS) * (width - LEFT);
  const yOf = (value) => (HEIGHT - BOTTOM) * (1 - (value / top) * 0.88);

  function label(point) {
    series.forEach((one, at) => {
      labels[at].textContent = point ? format(one.of(point)) : "–";
    });
  }

  function update(given, at) {
    now = at;
    points = given.filter((point) => now - point.at_ms < SPAN_MS);
    top = scaleOf(Math.max(0, ...points.flatMap((point) => series.map((one) => one.of(point)))), isBytes);
    for (const [, text, part] of grid) text.textContent = part ? format(top * part) : "";
    series.forEach((one, i) => {
      const path = points.map((point, k) => `${k ? "L" : "M"}${xOf(point).toFixed(1)} ${yOf(one.of(point)).toFixed(1)}`).join("");
      lines[i].setAttribute("d", path);
      if (i > 0) return;
      const base = HEIGHT - BOTTOM;
      const isDrawn = points.length > 1;
      area.setAttribute("d", isDrawn ? `${path}L${xOf(points.at(-1)).toFixed(1)} ${base}L${xOf(points[0]).toFixed(1)} ${base}Z` : "");
    });
    if (cursor.getAttribute("visibility") === "hidden") label(points.at(-1));
  }

  function resize() {
    width = Math.max(120, image.clientWidth || width);
    image.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    end.setAttribute("x", width);
    for (const [line, text] of grid) {
      line.setAttribute("x2", width);
      text.setAttribute("x", width);
    }
    update(points, now);
  }

  new ResizeObserver(resize).observe(image);
  image.addEventListener("pointermove", (event) => {
    const box = image.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    const near = points.reduce((best, point) => (!best || Math.abs(xOf(point) - x) < Math.abs(xOf(best) - x) ? point : best), null);
    if (!near) return;
    for (const part of [cursor, ...dots]) part.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", xOf(near));
    cursor.setAttribute("x2", xOf(near));
    dots.forEach((dot, i) => {
      dot.setAttribute("cx", xOf(near));
      dot.setAttribute("cy", yOf(series[i].of(near)));
    });
    when.textContent = new Date(near.at_ms).toLocaleTimeString("en-GB");
    label(near);
  });
  image.addEventListener("pointerleave", () => {
    for (const part of [cursor, ...dots]) part.setAttribute("visibility", "hidden");
    when.textContent = "";
    label(points.at(-1));
  });
  return { element, update };
}
