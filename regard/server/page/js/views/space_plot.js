// Plotting of points: a plane with equal scales, axes, arrows, and labels that do not overlap.

import { shape, textWidth } from "../dom.js";
import { short } from "../format.js";
import { shortened } from "./plot.js";

/** @typedef {{ x: number, y: number }} Point */

/**
 * @typedef {object} Layout
 * @property {number} width
 * @property {number} height
 * @property {{ left: number, right: number, top: number, bottom: number }} inner in pixels
 * @property {number} scale pixels per unit
 * @property {Point} middle center in data units
 * @property {(point: Point) => Point} at the position of a point in pixels
 */

const MARGIN = { left: 46, right: 16, top: 12, bottom: 38 };
/** The largest number of labels. */
const MAX_LABELS = 60;

/**
 * @param {Point[]} points
 * @param {{ width: number, height: number }} room
 * @param {typeof MARGIN} [margin]
 * @returns {Layout}
 */
export function layOut(points, { width, height }, margin = MARGIN) {
  const inner = { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
  const [low, high] = [Math.min, Math.max].map((most) => ({ x: most(...points.map((p) => p.x)), y: most(...points.map((p) => p.y)) }));
  const [across, down] = [inner.right - inner.left - 60, inner.bottom - inner.top - 34];
  const scale = Math.min(across / (high.x - low.x || 1e-9), down / (high.y - low.y || 1e-9), 1e6);
  const middle = { x: (low.x + high.x) / 2, y: (low.y + high.y) / 2 };
  const center = { x: (inner.left + inner.right) / 2, y: (inner.top + inner.bottom) / 2 };
  const at = (/** @type {Point} */ { x, y }) => ({ x: center.x + (x - middle.x) * scale, y: center.y - (y - middle.y) * scale });
  return { width, height, inner, scale, middle, at };
}

/**
 * Draw the axes with a few ticks and their titles.
 * @param {Layout} plot
 * @param {{ x: string, y: string }} names
 */
export function backdrop(plot, names) {
  const { inner, scale } = plot;
  const step = roundStep(90 / scale);
  const made = [];
  let lines = "";
  const from = { x: (inner.left - plot.at({ x: 0, y: 0 }).x) / scale, y: -(inner.bottom - plot.at({ x: 0, y: 0 }).y) / scale };
  const to = { x: (inner.right - plot.at({ x: 0, y: 0 }).x) / scale, y: -(inner.top - plot.at({ x: 0, y: 0 }).y) / scale };
  for (let n = Math.ceil(from.x / step); n * step <= to.x; n++) {
    const { x } = plot.at({ x: n * step, y: 0 });
    lines += `M${x.toFixed(1)} ${inner.top}V${inner.bottom}`;
    made.push(shape("text.sum", { x, y: inner.bottom + 15, "text-anchor": "middle" }, tickText(n * step, step)));
  }
  for (let n = Math.ceil(from.y / step); n * step <= to.y; n++) {
    const { y } = plot.at({ x: 0, y: n * step });
    lines += `M${inner.left} ${y.toFixed(1)}H${inner.right}`;
    made.push(shape("text.sum", { x: inner.left - 7, y, dy: "0.35em", "text-anchor": "end" }, tickText(n * step, step)));
  }
  return [
    shape("path.hairlines", { d: lines }), ...made,
    shape("text.axis", { x: inner.right, y: inner.bottom + 32, "text-anchor": "end" }, `${names.x} →`),
    shape("text.axis", { x: 11, y: inner.top, "text-anchor": "end", transform: `rotate(-90 11 ${inner.top})` }, `${names.y} →`),
  ];
}

/**
 * @param {number} x
 * @param {number} step
 */
function tickText(x, step) {
  return short(x, Math.max(0, -Math.floor(Math.log10(step))));
}

/**
 * Return a round number near a size.
 * @param {number} size
 */
function roundStep(size) {
  const power = 10 ** Math.floor(Math.log10(size));
  return power * (size / power < 1.5 ? 1 : size / power < 3.5 ? 2 : size / power < 7.5 ? 5 : 10);
}

/**
 * Return a point moved by an arrow.
 * @param {Point} from
 * @param {{ by: Point }} part
 */
export function translate(from, { by }) {
  return { x: from.x + by.x, y: from.y + by.y };
}

/**
 * Return the path of an arrowhead; empty if the arrow is too short.
 * @param {Point} from
 * @param {Point} to
 * @param {number} size
 */
export function arrowHead(from, to, size) {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  if (length < 3) return "";
  const [ux, uy] = [(to.x - from.x) / length, (to.y - from.y) / length];
  const long = Math.min(size, length);
  const [bx, by] = [to.x - long * ux, to.y - long * uy];
  const f = (/** @type {number} */ x) => x.toFixed(1);
  return `M${f(to.x)} ${f(to.y)}L${f(bx - 0.45 * long * uy)} ${f(by + 0.45 * long * ux)}L${f(bx + 0.45 * long * uy)} ${f(by - 0.45 * long * ux)}z`;
}

/**
 * A number next to an arrow.
 * @param {Point} from
 * @param {Point} to
 * @param {string} text
 * @param {string} own
 */
export function arrowLabel(from, to, text, own) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const [nx, ny] = [-(to.y - from.y) / length, (to.x - from.x) / length];
  const up = ny > 0 ? -1 : 1;
  return shape(`text.partname${own}`, { x: (from.x + to.x) / 2 + 9 * up * nx, y: (from.y + to.y) / 2 + 9 * up * ny, dy: "0.35em", "text-anchor": "middle" }, text);
}

/**
 * Place labels next to points, the selected one first; labels that would overlap are left out.
 * @param {Layout} plot
 * @param {Point[]} points
 * @param {Point[]} others that must not be covered either
 * @param {import("../tokens.js").Tick[]} ticks
 * @param {number} chosen
 */
export function placeLabels(plot, points, others, ticks, chosen) {
  /** @type {{ left: number, right: number, top: number, bottom: number }[]} */
  const taken = [...points, ...others].map((point) => {
    const { x, y } = plot.at(point);
    return { left: x - 3, right: x + 3, top: y - 3, bottom: y + 3 };
  });
  const order = [chosen, ...points.keys()].filter((i, n) => n === 0 || i !== chosen).slice(0, MAX_LABELS);
  const made = [];
  for (const i of order) {
    const text = shortened(ticks[i].label, 12);
    const box = findFreeBox(plot, plot.at(points[i]), textWidth(text, 13) + 2, taken, i === chosen);
    if (!box) continue;
    taken.push(box);
    made.push(shape(`text.pointname${i === chosen ? ".on" : ""}${ticks[i].special ? ".special" : ""}`, { x: box.left + 1, y: (box.top + box.bottom) / 2, dy: "0.35em" }, text));
  }
  return made.reverse(); // the selected one on top
}

/**
 * @param {Layout} plot
 * @param {Point} point
 * @param {number} width
 * @param {{ left: number, right: number, top: number, bottom: number }[]} taken
 * @param {boolean} must
 */
function findFreeBox({ inner }, { x, y }, width, taken, must) {
  const boxes = [[7, -8], [-7 - width, -8], [-width / 2, -23], [-width / 2, 7], [7, -20], [7, 4]].map(([dx, dy]) =>
    ({ left: x + dx, right: x + dx + width, top: y + dy, bottom: y + dy + 16 }));
  const inside = boxes.filter((box) => box.left >= inner.left && box.right <= inner.right + 12);
  const free = inside.find((box) => taken.every((one) => one.right < box.left || one.left > box.right || one.bottom < box.top || one.top > box.bottom));
  return free ?? (must ? (inside[0] ?? boxes[0]) : null);
}
