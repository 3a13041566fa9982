// Captions and legends: what sizes and colors mean, and their range.

import { tone, weightTone } from "../color.js";
import { el, fill, shape } from "../dom.js";
import { full, short } from "../format.js";
import { differenceOf, isHeatmap, plotOf } from "./plot.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Stage} Stage
 */

/**
 * Return a caption: the stage, its range, and a legend.
 * @param {App} app
 * @param {{ stage: Stage, tables: import("../head.js").Tables, name: string }} figure
 */
export function caption(app, { stage, tables, name }) {
  const { range, rows, columns } = plotOf(app, tables, stage);
  const { view } = app.store.state;
  const hot = app.open.large || (view === "grid" && isHeatmap({ rows, columns }));
  const key = view === "grid" ? (hot ? heatKey(stage, range) : circleKey(app, stage, range, name !== "")) : el("span", {}, app.t(/** @type {any} */ (`how_${view}`)));
  return el("figcaption", {},
    name ? el(`b.${name}`, {}, app.t(name === "before" ? "before" : "after")) : "",
    !hot && !name && app.open.after !== app.open.before ? overlayKey(app) : "",
    el("span", {}, app.t(stage)),
    app.open.large ? "" : el("span.range", { title: `${full(range[0])} … ${full(range[1])}` }, rangeText(app, stage, tables, range)),
    key);
}

/**
 * Say how a heat map shows both versions: as halves of each cell or as their difference.
 * @param {App} app
 * @param {Element} frame
 * @param {Stage} stage
 * @param {"halves" | "difference" | null} how
 */
export function explainOverlay(app, frame, stage, how) {
  const old = /** @type {HTMLElement} */ (frame.querySelector("figcaption"));
  if (!how) {
    if (old.dataset.overlay) old.replaceWith(caption(app, { stage, tables: app.open.after, name: "" }));
    return;
  }
  const { t, open } = app;
  const [after, before] = [plotOf(app, open.after, stage), plotOf(app, open.before, stage)];
  const { most } = how === "difference" ? differenceOf(after, before) : { most: 0 };
  const range = /** @type {[number, number]} */ (most ? [-most, most] : [Math.min(after.range[0], before.range[0]), Math.max(after.range[1], before.range[1])]);
  const names = how === "halves"
    ? [el("span.overlay", { title: t("halvesHelp") }, halvesSign(), el("b.before", {}, `◤ ${t("before")}`), el("b.after", {}, `◢ ${t("after")}`)), el("span", {}, t(stage))]
    : [el("span.overlay", { title: t("differenceHelp") }, el("b.after", {}, t("after")), "−", el("b.before", {}, t("before"))), el("span", {}, t("differenceMost"))];
  old.dataset.overlay = how;
  fill(old, names, how === "halves" ? el("span.range", { title: `${full(range[0])} … ${full(range[1])}` }, `${short(range[0])} … ${short(range[1])}`) : "", heatKey(how === "halves" ? stage : "scores", range, how === "difference"));
}

/** One cell with two halves. */
function halvesSign() {
  return shape("svg.key", { width: 16, height: 18, "aria-hidden": "true" }, shape("path", { d: "M1 2h14l-14 14z", fill: tone("weight", 0.35) }), shape("path", { d: "M15 2v14h-14z", fill: tone("weight", 0.9) }), shape("rect.outline", { x: 1, y: 2, width: 14, height: 14 }));
}

/**
 * Update a caption for other numbers.
 * @param {App} app
 * @param {Element} old
 * @param {{ stage: Stage, tables: import("../head.js").Tables }} figure
 */
export function updateCaption(app, old, { stage, tables }) {
  if (old.getAttribute("data-overlay")) return; // explained by the picture itself
  const { range } = plotOf(app, tables, stage);
  const rangeElement = old.querySelector(".range");
  const most = old.querySelector("svg.key text");
  if (rangeElement) rangeElement.textContent = rangeText(app, stage, tables, range);
  rangeElement?.setAttribute("title", `${full(range[0])} … ${full(range[1])}`);
  if (most) most.textContent = maximumText(stage, range);
}

/**
 * @param {App} app
 * @param {Stage} stage
 * @param {import("../head.js").Tables} tables
 * @param {[number, number]} range
 */
function rangeText(app, stage, tables, range) {
  const hidden = stage === "masked" && tables.allowed ? `, −∞ ${app.t("whereMasked")}` : "";
  return `${short(range[0])} … ${short(range[1])}${hidden}`;
}

/**
 * Return the number at the dark end of the color bar.
 * @param {Stage} stage
 * @param {[number, number]} range
 */
function maximumText(stage, range) {
  return stage === "weights" ? short(range[1]) : `±${short(Math.max(Math.abs(range[0]), Math.abs(range[1])), 1)}`;
}

/**
 * A legend of circles; rings are negative.
 * @param {App} app
 * @param {Stage} stage
 * @param {[number, number]} range
 * @param {boolean} few
 */
function circleKey(app, stage, range, few) {
  const weights = stage === "weights";
  const most = weights ? 1 : Math.max(Math.abs(range[0]), Math.abs(range[1])) || 1;
  const samples = weights ? (few ? [0.5, 1] : [0.1, 0.5, 1]) : [-most / 2, most / 2];
  const made = shape("svg.key", { width: samples.length * 46, height: 18, "aria-hidden": "true" });
  samples.forEach((x, i) => {
    const r = 7 * Math.sqrt(Math.abs(x) / most);
    const role = weights ? "weights" : x < 0 ? "negative" : "positive";
    made.append(shape(`circle.${role}`, { cx: 8 + i * 46, cy: 9, r: x < 0 ? r - 0.8 : r }), shape("text.sum", { x: 19 + i * 46, y: 9, dy: "0.35em" }, short(x, weights ? 1 : 0)));
  });
  return el("span.how", { title: app.t(weights ? "sizeWeights" : "sizeScores") }, made);
}

/**
 * A legend of one picture with both versions: a ring or a dashed line before, a disc or a line after the edits.
 * @param {App} app
 */
function overlayKey({ t, store }) {
  if (store.state.view === "lines") {
    const line = (/** @type {string} */ name) => shape("svg.key", { width: 28, height: 18, "aria-hidden": "true" }, shape(`path.curve.${name}`, { d: "M2 9h24", "stroke-width": name === "old" ? 1.4 : 3 }));
    return el("span.overlay", {}, line("old"), el("b.before", {}, t("before")), line("selected"), el("b.after", {}, t("after")));
  }
  const sign = (/** @type {string} */ name) => shape("svg.key", { width: 16, height: 18, "aria-hidden": "true" }, shape(`circle.${name}`, { cx: 8, cy: 9, r: name === "ring" ? 6 : 4.5 }));
  return el("span.overlay", {}, sign("ring"), el("b.before", {}, t("before")), sign("weights"), el("b.after", {}, t("after")));
}

/**
 * A color bar from the smallest to the largest number.
 * @param {Stage} stage
 * @param {[number, number]} range
 * @param {boolean} [signed] whether both ends are named
 */
function heatKey(stage, range, signed = false) {
  const steps = 24;
  const made = shape("svg.key", { width: signed ? 190 : 150, height: 18, "aria-hidden": "true" });
  if (signed) return signedKey(made, range);
  const low = stage === "weights" ? 0 : -1;
  for (let i = 0; i < steps; i++) {
    const t = low + ((1 - low) * i) / (steps - 1);
    const role = stage === "weights" ? "weight" : t < 0 ? "negative" : "positive";
    made.append(shape("rect", { x: 4 * i, y: 4, width: 4.2, height: 10, fill: tone(role, stage === "weights" ? weightTone(t) : Math.abs(t)) }));
  }
  made.append(shape("text.sum", { x: 4 * steps + 6, y: 9, dy: "0.35em" }, maximumText(stage, range)));
  return made;
}

/**
 * A color bar from the largest fall to the largest rise.
 * @param {SVGElement} made
 * @param {[number, number]} range
 */
function signedKey(made, [low, high]) {
  const [left, steps] = [44, 24];
  made.append(shape("text.sum", { x: left - 5, y: 9, dy: "0.35em", "text-anchor": "end" }, short(low)));
  for (let i = 0; i < steps; i++) {
    const t = (2 * i) / (steps - 1) - 1;
    made.append(shape("rect", { x: left + 4 * i, y: 4, width: 4.2, height: 10, fill: tone(t < 0 ? "negative" : "positive", Math.abs(t)) }));
  }
  made.append(shape("text.sum", { x: left + 4 * steps + 5, y: 9, dy: "0.35em" }, `+${short(high)}`));
  return made;
}
