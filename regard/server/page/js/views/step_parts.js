// Parts of the steps pane: sections, numbers that highlight their inputs, vectors drawn as strips.

import { color } from "../color.js";
import { el, fill, sharpen } from "../dom.js";
import { factor, full, short } from "../format.js";
import { largestSize } from "../matrix.js";

/**
 * @typedef {import("./steps.js").StepContext} StepContext
 * @typedef {import("../dom.js").Child} Child
 */

/**
 * @param {string} name
 * @param {string} title
 * @param {Child} formula
 * @param {...(Child | Child[])} body
 */
export function step(name, title, formula, ...body) {
  return el("section.step", { "data-step": name }, el("h3", {}, el("span.n"), el("span.t", {}, title), formula), el("div.body", {}, ...body));
}

/**
 * A number with all digits in its tooltip; hovering highlights its inputs.
 * @param {number} x
 * @param {{ name?: string, from?: string, role?: string, was?: number }} [about]
 */
export function number(x, { name, from, role, was } = {}) {
  const made = el(`span.num${role ? `.${role}` : ""}`, { title: full(x), "data-name": name, "data-from": from, tabindex: from ? 0 : undefined }, short(x));
  const changed = was !== undefined && was !== x && !(Math.abs(was - x) < 1e-9);
  return changed ? el("span.changed", {}, el("s", { title: full(was) }, short(was)), " ", made) : made;
}

/**
 * A line with a name and a strip.
 * @param {Child} name
 * @param {ReturnType<typeof drawStrip>} strip
 */
export function line(name, strip) {
  return el("div.line", {}, el("span.name", {}, name), strip.element);
}

/**
 * Strips that mark the same element together, with a line that explains it.
 * @param {StepContext} at
 * @param {Child | Child[]} resting text of the line when no element is hovered
 * @param {(i: number) => Child[]} explain
 */
export function linked(at, resting, explain) {
  /** @type {ReturnType<typeof drawStrip>[]} */
  const strips = [];
  const where = el("p.where", {}, resting);
  const point = (/** @type {number} */ i) => {
    strips.forEach((strip) => strip.mark(i));
    fill(where, i < 0 ? resting : explain(i));
  };
  const add = (/** @type {Strip} */ strip, width = at.width) => {
    const made = drawStrip({ onhover: point, ...strip }, width);
    strips.push(made);
    return made;
  };
  return { add, where };
}

/**
 * Return the largest terms of a dot product: "0.12·0.50 + (−0.31)·0.20 + …".
 * @param {ArrayLike<number>} a
 * @param {ArrayLike<number>} b
 * @param {number} [most]
 */
export function largestTerms(a, b, most = 3) {
  const order = Array.from({ length: a.length }, (_, i) => i).sort((i, j) => Math.abs(a[j] * b[j]) - Math.abs(a[i] * b[i]));
  const shown = order.slice(0, most).sort((i, j) => i - j);
  const text = shown.map((i) => `${factor(a[i])}·${factor(b[i])}`).join(" + ");
  return a.length > most ? `${text} + …` : text;
}

/**
 * @typedef {object} Strip
 * @property {ArrayLike<number>} values
 * @property {string} role of its color
 * @property {string} label for screen readers
 * @property {string} [name] its name, to which other elements refer with `from`
 * @property {string} [from] names of its inputs
 * @property {number} [most] the magnitude that fills the strip; default: its largest
 * @property {[number, number]} [part] a highlighted range
 * @property {number} [height]
 * @property {number} [mark]
 * @property {(i: number) => void} [onhover] with -1 when the mouse leaves
 */

/**
 * Unused canvases by size: creating one takes longer than painting it.
 * @type {Map<string, HTMLCanvasElement[]>}
 */
const SPARE_CANVASES = new Map();

/** @param {Iterable<HTMLElement>} canvases that were removed */
export function recycleCanvases(canvases) {
  for (const canvas of canvases) {
    const size = canvas.dataset.size ?? "";
    SPARE_CANVASES.set(size, [...(SPARE_CANVASES.get(size) ?? []), /** @type {HTMLCanvasElement} */ (canvas)]);
  }
}

/**
 * @param {Strip} strip
 * @param {number} width
 */
function canvasFor({ label, name, from, values, height }, width) {
  const size = `${width} ${height}`;
  const canvas = SPARE_CANVASES.get(size)?.pop() ?? document.createElement("canvas");
  canvas.dataset.size = size;
  const all = { class: "strip", role: "img", "aria-label": label, "data-name": name, "data-from": from, "data-n": values.length };
  for (const [key, value] of Object.entries(all)) {
    if (value === undefined) canvas.removeAttribute(key);
    else canvas.setAttribute(key, String(value));
  }
  return canvas;
}

/**
 * @param {Strip} strip
 * @param {number} width
 * @returns {{ element: HTMLElement, mark: (i: number) => void }}
 */
export function drawStrip(strip, width) {
  const canvas = canvasFor(strip, width);
  const paint = (/** @type {number} */ marked) => bars(canvas, strip, width, marked);
  paint(strip.mark ?? -1);
  canvas.onpointermove = (event) => {
    const box = canvas.getBoundingClientRect();
    const i = Math.floor(((event.clientX - box.left) / box.width) * strip.values.length);
    strip.onhover?.(Math.min(Math.max(0, i), strip.values.length - 1));
  };
  canvas.onpointerleave = () => strip.onhover?.(-1);
  return { element: canvas, mark: (i) => paint(i < 0 ? (strip.mark ?? -1) : i) };
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Strip} strip
 * @param {number} width
 * @param {number} marked
 */
function bars(canvas, { values, role, most, part, height = 26 }, width, marked) {
  const pen = sharpen(canvas, width, height);
  const n = values.length;
  const step = width / n;
  const top = most ?? (largestSize(values) || 1);
  const signed = Array.prototype.some.call(values, (x) => x < 0);
  const zero = signed ? height / 2 : height - 0.5;
  const reach = signed ? height / 2 - 1 : height - 2;
  if (part) {
    pen.fillStyle = color("band");
    pen.fillRect(part[0] * step, 0, (part[1] - part[0]) * step, height);
  }
  pen.fillStyle = color("hairline");
  pen.fillRect(0, zero - 0.5, width, 1);
  const gap = step > 5 ? 1 : step > 2.5 ? 0.5 : 0;
  for (let i = 0; i < n; i++) {
    const size = Math.min(1, Math.abs(values[i]) / top) * reach;
    const faded = (part && (i < part[0] || i >= part[1])) || (marked >= 0 && i !== marked);
    pen.globalAlpha = faded ? 0.38 : 1;
    pen.fillStyle = color(values[i] < 0 ? `${role}-under` : role);
    pen.fillRect(i * step + gap / 2, values[i] < 0 ? zero : zero - size, Math.max(step - gap, 0.6), size);
  }
  pen.globalAlpha = 1;
  if (marked >= 0) {
    pen.strokeStyle = color("ink");
    pen.lineWidth = 1;
    pen.strokeRect(marked * step - 0.5 + gap / 2, 0.5, Math.max(3, step + 1 - gap), height - 1);
  }
}
