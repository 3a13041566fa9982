// Captions and legends: what sizes and colors mean, and their range.

import { tone } from "../color.js";
import { el, shape } from "../dom.js";
import { full, short } from "../format.js";
import { isHeatmap, plotOf } from "./plot.js";

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
    el("span", {}, app.t(stage)),
    app.open.large ? "" : el("span.range", { title: `${full(range[0])} … ${full(range[1])}` }, rangeText(app, stage, tables, range)),
    key);
}

/**
 * Update a caption for other numbers.
 * @param {App} app
 * @param {Element} old
 * @param {{ stage: Stage, tables: import("../head.js").Tables }} figure
 */
export function updateCaption(app, old, { stage, tables }) {
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
 * A color bar from the smallest to the largest number.
 * @param {Stage} stage
 * @param {[number, number]} range
 */
function heatKey(stage, range) {
  const steps = 24;
  const made = shape("svg.key", { width: 150, height: 18, "aria-hidden": "true" });
  const low = stage === "weights" ? 0 : -1;
  for (let i = 0; i < steps; i++) {
    const t = low + ((1 - low) * i) / (steps - 1);
    const role = stage === "weights" ? "weight" : t < 0 ? "negative" : "positive";
    made.append(shape("rect", { x: 4 * i, y: 4, width: 4.2, height: 10, fill: tone(role, Math.abs(t)) }));
  }
  made.append(shape("text.sum", { x: 4 * steps + 6, y: 9, dy: "0.35em" }, maximumText(stage, range)));
  return made;
}
