// The figure of scaling: spread of scores, entropy and gradient against d_k, measured on random vectors.

import { N_KEYS, N_QUERIES, spreads, WIDTHS } from "../course/random.js";
import { el, fill, shape } from "../dom.js";
import { full, short } from "../format.js";
import { formula, v } from "../formula.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../course/random.js").Spread} Spread
 * @typedef {import("./lesson_figures.js").FigureContext} FigureContext
 */

const MEASURES = /** @type {const} */ ([["deviation", "figureDeviation"], ["entropy", "figureEntropy"], ["gradient", "figureGradient"]]);

/**
 * The spread of the scores alone.
 * @param {App} app
 * @param {FigureContext} context
 */
export function deviation(app, context) {
  return plots(app, context, [MEASURES[0]]);
}

/**
 * @param {App} app
 * @param {FigureContext} context
 */
export function spread(app, context) {
  return plots(app, context, MEASURES);
}

/**
 * @param {App} app
 * @param {FigureContext} context
 * @param {readonly (typeof MEASURES[number])[]} measures
 */
async function plots(app, { width, height, own, report }, measures) {
  const { t } = app;
  const found = spreads();
  const across = width > 620 ? measures.length : 1;
  const size = { width: Math.min(420, Math.floor(width / across) - 16), height: Math.max(150, Math.min(320, across > 1 ? height - 90 : height / 3 - 30)) };
  const board = el("div.spreads", { style: { "--across": across } });
  const number = el("output.digits");
  const show = (/** @type {number} */ at) => {
    fill(board, measures.map(([name, title]) => el("figure", { "data-measure": name }, el("figcaption", {}, t(title)), plot(found, name, at, size, t(title)), readout(app, found, name, at))));
    fill(number, formula(`d_k = ${WIDTHS[at]}`, v("d", "k"), ` = ${WIDTHS[at]}`));
    report({ width: WIDTHS[at] });
  };
  const start = own.width ? WIDTHS.indexOf(own.width) : WIDTHS.indexOf(512);
  const slider = el("input", { type: "range", min: 0, max: WIDTHS.length - 1, step: 1, value: start, "aria-label": "d_k", oninput: () => show(Number(slider.value)) });
  show(start);
  const key = el("p.key", {}, el("span.mark.scaled"), t("scaledBy"), el("span.mark.unscaled"), t("unscaledBy"));
  return { title: t("figureSpread", { queries: N_QUERIES, keys: N_KEYS }), body: [el("label.slider", {}, slider, " ", number), board, key] };
}

/**
 * @param {App} app
 * @param {{ scaled: Spread[], unscaled: Spread[] }} found
 * @param {"deviation" | "entropy" | "gradient"} name
 * @param {number} at
 */
function readout({ t }, found, name, at) {
  const number = (/** @type {"scaled" | "unscaled"} */ which) => {
    const x = found[which][at][name];
    return el("span.digits", { "data-which": which, "data-value": x, title: full(x) }, short(x));
  };
  return el("p.note", {}, t("scaledBy"), " ", number("scaled"), " · ", t("unscaledBy"), " ", number("unscaled"));
}

/**
 * @param {{ scaled: Spread[], unscaled: Spread[] }} found
 * @param {"deviation" | "entropy" | "gradient"} name
 * @param {number} at the marked width
 * @param {{ width: number, height: number }} size
 * @param {string} label
 */
function plot(found, name, at, { width, height }, label) {
  const most = Math.max(...found.scaled.map((one) => one[name]), ...found.unscaled.map((one) => one[name]));
  const [left, bottom] = [34, 22];
  const x = (/** @type {number} */ i) => left + ((width - left - 10) * i) / (WIDTHS.length - 1);
  const y = (/** @type {number} */ value) => 8 + (height - bottom - 8) * (1 - value / most);
  const line = (/** @type {"scaled" | "unscaled"} */ which) => [
    shape(`path.spread.${which}`, { d: found[which].map((one, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(one[name]).toFixed(1)}`).join("") }),
    found[which].map((one, i) => shape(`${which === "scaled" ? "circle" : "rect"}.spread-dot.${which}`, which === "scaled" ? { cx: x(i), cy: y(one[name]), r: 3.2 } : { x: x(i) - 3, y: y(one[name]) - 3, width: 6, height: 6 }, shape("title", {}, `d_k ${one.d_k}: ${full(one[name])}`))),
  ].flat();
  const ticks = [0, most / 2, most].map((value) => [shape("path.hairlines", { d: `M${left} ${y(value)}H${width - 8}` }), shape("text.number", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, short(value, value >= 10 ? 1 : 2))]);
  const widths = WIDTHS.map((d, i) => (i % 2 ? null : shape("text.number", { x: x(i), y: height - 4, "text-anchor": "middle" }, String(d))));
  return shape("svg", { width, height, role: "img", "aria-label": label }, ticks.flat(), widths, shape("path.marked", { d: `M${x(at)} 4V${height - bottom}` }), line("unscaled"), line("scaled"));
}
