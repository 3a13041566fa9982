// One query's weights (or scores) as bars, one for each key.

import { fill, shape, textWidth } from "../dom.js";
import { short } from "../format.js";
import { row } from "../matrix.js";
import { shortened } from "./plot.js";

/** @typedef {import("./plot.js").Plot} Plot */

const MAX_BARS = 48;

/**
 * @param {Element} element
 * @param {Plot} plot
 * @param {Plot | null} [before] drawn as outlines if there are edits
 */
export function draw(element, plot, before = null) {
  let shown = chosenKeys(plot, plot.query);
  const select = (/** @type {number} */ query, /** @type {number} */ key = plot.key) => {
    shown = chosenKeys(plot, query);
    fill(element, picture(plot, before, query, key, shown));
  };
  select(plot.query);
  return select;
}

/**
 * Return all keys in order, or those with the largest weights if there are too many.
 * @param {Plot} plot
 * @param {number} query
 */
function chosenKeys(plot, query) {
  const line = row(plot.table, query);
  let keys = Array.from(line.keys());
  if (plot.kept) keys = keys.filter((j) => plot.kept?.[query * plot.columns.length + j]);
  if (keys.length <= MAX_BARS) return keys;
  return keys.sort((a, b) => line[b] - line[a]).slice(0, MAX_BARS).sort((a, b) => a - b);
}

/**
 * @param {Plot} plot
 * @param {Plot | null} before
 * @param {number} query
 * @param {number} key
 * @param {number[]} keys
 */
function picture(plot, before, query, key, keys) {
  const line = row(plot.table, query);
  const step = Math.max(15, Math.min(30, Math.floor((plot.height - 60) / keys.length)));
  const left = Math.max(60, ...keys.map((j) => textWidth(shortened(plot.columns[j].label, 18), 13))) + 14;
  const width = Math.min(plot.width, 680);
  const scale = scaleOf(plot, before, query, left, width - 74);
  const top = 34;
  const made = shape("svg.bars", { width, height: top + step * keys.length + 30, role: "img", "aria-label": `${plot.asks}; ${plot.answers}` });
  const zero = scale(0);
  made.append(
    shape("text.axis.key", { x: 0, y: 13 }, plot.answers),
    shape("path.hairlines", { d: `M${zero} ${top - 6}v${step * keys.length + 12}` }),
  );
  keys.forEach((j, n) => {
    const y = top + n * step;
    const bar = Math.max(4, step * 0.56);
    made.append(
      shape(`text.tick.key${plot.columns[j].special ? ".special" : ""}${j === key ? ".on" : ""}`, { x: left - 10, y: y + step / 2, dy: "0.35em", "text-anchor": "end" }, shortened(plot.columns[j].label, 18)),
      ...barsOf(plot, before, { query, j, y: y + (step - bar) / 2, bar, zero, scale }),
      shape(`text.number${j === key ? ".on" : ""}`, { x: width, y: y + step / 2, dy: "0.35em", "text-anchor": "end" }, plot.off ? short(0) : short(line[j])),
      shape("rect.hit", { x: 0, y, width, height: step, onpointerenter: () => plot.onhover(query, j), onclick: () => plot.onpick(query, j) }),
    );
  });
  made.append(...totals(plot, keys, line, { zero, scale, y: top + step * keys.length, top, width }));
  return made;
}

/**
 * @param {Plot} plot
 * @param {Plot | null} before
 * @param {number} query
 * @param {number} left
 * @param {number} right
 */
function scaleOf(plot, before, query, left, right) {
  const values = [row(plot.table, query), ...(before ? [row(before.table, query)] : [])].flatMap((x) => Array.from(x));
  const finite = values.filter(Number.isFinite);
  const low = Math.min(0, ...finite);
  const high = plot.stage === "weights" ? Math.max(...finite, 0.001) : Math.max(0, ...finite);
  return (/** @type {number} */ x) => left + ((x - low) / (high - low || 1)) * (right - left);
}

/**
 * @param {Plot} plot
 * @param {Plot | null} before
 * @param {{ query: number, j: number, y: number, bar: number, zero: number, scale: (x: number) => number }} place
 */
function barsOf(plot, before, { query, j, y, bar, zero, scale }) {
  const at = query * plot.columns.length + j;
  const x = plot.off ? 0 : plot.table.data[at];
  const made = [];
  if (x === -Infinity) made.push(shape("text.number.masked", { x: zero + 4, y: y + bar / 2, dy: "0.35em" }, "−∞"));
  else {
    const role = plot.stage === "weights" ? "weights" : x < 0 ? "negative" : "positive";
    const [a, b] = [Math.min(zero, scale(x)), Math.max(zero, scale(x))];
    made.push(shape(`rect.${role}`, { x: a, y, width: Math.max(0.6, b - a), height: bar, rx: 1.5 }));
  }
  const old = before?.table.data[at];
  if (old !== undefined && Number.isFinite(old) && Math.abs(old - x) > 5e-4) {
    made.push(shape("rect.ghost", { x: Math.min(zero, scale(old)), y: y - 1, width: Math.abs(scale(old) - zero), height: bar + 2 }));
  }
  return made;
}

/**
 * Draw the sum of all bars, including hidden ones, and a line at equal weights.
 * @param {Plot} plot
 * @param {number[]} keys
 * @param {Float32Array} line
 * @param {{ zero: number, scale: (x: number) => number, y: number, top: number, width: number }} place
 */
function totals(plot, keys, line, { scale, y, top, width, zero }) {
  if (plot.stage !== "weights") return [];
  const sum = plot.off ? 0 : line.reduce((a, b) => a + b, 0);
  const even = scale(1 / line.length);
  const hidden = line.length - keys.length;
  const note = hidden > 0 ? plot.t("othersHidden", { n: hidden }) : "";
  return [
    shape("path.even", { d: `M${even} ${top - 4}V${y + 4}` }),
    shape("text.sum", { x: even + 4, y: top - 8 }, plot.t("equalWeights", { x: short(1 / line.length) })),
    shape("text.sum", { x: zero, y: y + 20 }, note),
    shape("text.number.on", { x: width, y: y + 20, "text-anchor": "end" }, `${plot.t("sum")} ${short(sum)}`),
  ];
}
