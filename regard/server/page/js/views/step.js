// What all steps share: a frame, lines with strips, numbers that know where they come from.

import { el, fill } from "../dom.js";
import { factor, full, short } from "../format.js";
import { drawStrip } from "./strip.js";

/**
 * @typedef {import("./steps.js").Way} Way
 * @typedef {import("./strip.js").Strip} Strip
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
 * A number; its full digits on hover, what it is made of lit up.
 * @param {number} x
 * @param {{ name?: string, from?: string, role?: string, was?: number }} [about]
 */
export function num(x, { name, from, role, was } = {}) {
  const made = el(`span.num${role ? `.${role}` : ""}`, { title: full(x), "data-name": name, "data-from": from, tabindex: from ? 0 : undefined }, short(x));
  const changed = was !== undefined && was !== x && !(Math.abs(was - x) < 1e-9);
  return changed ? el("span.changed", {}, el("s", { title: full(was) }, short(was)), " ", made) : made;
}

/**
 * A line: a name, a strip.
 * @param {Child} name
 * @param {ReturnType<typeof drawStrip>} strip
 */
export function line(name, strip) {
  return el("div.line", {}, el("span.name", {}, name), strip.element);
}

/**
 * Strips that point at the same place together, with a line of text that explains it.
 * @param {Way} way
 * @param {Child | Child[]} resting what the line says while nobody points
 * @param {(i: number) => Child[]} explain
 */
export function linked(way, resting, explain) {
  /** @type {ReturnType<typeof drawStrip>[]} */
  const strips = [];
  const where = el("p.where", { "aria-live": "polite" }, resting);
  const point = (/** @type {number} */ i) => {
    strips.forEach((strip) => strip.mark(i));
    fill(where, i < 0 ? resting : explain(i));
  };
  const add = (/** @type {Strip} */ strip, width = way.width) => {
    const made = drawStrip({ onhover: point, ...strip }, width);
    strips.push(made);
    return made;
  };
  return { add, where };
}

/**
 * "0.12·0.50 + (−0.31)·0.20 + …": the largest terms of a sum of products.
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
