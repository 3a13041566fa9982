// The legend of the flow: what its marks mean, with the ranges of their sizes and colors.

import { el, fill } from "../dom.js";
import { short } from "../format.js";
import { largestSize } from "../matrix.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").FlowRows} FlowRows
 */

/**
 * @param {App} app
 * @param {HTMLElement} element
 * @param {import("../source.js").Flow} flow
 * @param {{ strongest: number[], most: number }} range
 */
export function flowLegend({ t }, element, flow, { strongest, most }) {
  const kinds = new Set(flow.sides.flatMap((side) => side.stations.map((one) => one.kind)));
  const color = Math.max(...strongest);
  const item = (/** @type {string} */ name, /** @type {string} */ text) => el("li", {}, el(`i.mark.${name}`, { "aria-hidden": "true" }), text);
  fill(element, el("p", {}, t("flowHow")), el("ul", {},
    item("strip", t("legendStrip", { low: short(-color), high: short(color) })),
    item("lines", t("legendLines")),
    most > 1e-6 ? item("disc", t("legendDisc", { most: short(most) })) : "",
    kinds.has("feed_forward") ? item("slab", t("legendSlab")) : "",
    kinds.has("recurrent") ? item("bow", t("legendStates")) : "",
    flow.sides.length > 1 ? item("memory", t("legendMemory")) : ""), el("p", {}, t(kinds.has("feed_forward") ? "flowClick" : "flowClickNoUnits")));
}

/**
 * Return the number that has the full color in the strips of a side: twice their root mean square.
 * @param {FlowRows} rows
 */
function fullColor(rows) {
  let [sum, n] = [0, 0];
  for (const { data } of Object.values(rows.strip)) {
    for (let i = 0; i < data.length; i++) sum += data[i] * data[i];
    n += data.length;
  }
  return 2 * Math.sqrt(sum / Math.max(1, n)) || 1;
}

/**
 * Return the ranges of colors and sizes for some rows.
 * @param {FlowRows[]} rows by side
 */
export function rangeOf(rows) {
  const added = rows.flatMap((one) => Object.values(one.added).map((norms) => largestSize(norms)));
  return { strongest: rows.map(fullColor), most: Math.max(1e-9, ...added) };
}
