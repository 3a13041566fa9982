// Formulas made of plain elements, so that they can be saved as pictures like everything else.

import { el, shape } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * A formula with a label for screen readers.
 * @param {string} spoken
 * @param {...(Child | Child[])} parts
 */
export function formula(spoken, ...parts) {
  return el("span.math", { role: "math", "aria-label": spoken }, ...parts);
}

/**
 * A variable with an optional subscript.
 * @param {string} name
 * @param {string} [below]
 */
export function v(name, below) {
  const letter = el(/^[a-zα-ω]/i.test(name) ? "i" : "span", {}, name);
  return below ? el("span.var", {}, letter, el("sub", {}, below)) : letter;
}

/**
 * @param {Child | Child[]} above
 * @param {Child | Child[]} below
 */
export function fraction(above, below) {
  return el("span.fraction", {}, el("span", {}, above), el("span", {}, below));
}

/** @param {Child | Child[]} inside */
export function root(inside) {
  // the sign is drawn, not set: in fonts with wide CJK glyphs "√" would part from its bar
  const sign = shape("svg.radical", { viewBox: "0 0 10 20", preserveAspectRatio: "none", "aria-hidden": "true" }, shape("path", { d: "M0.5 12 L2.5 10.5 L5.5 19 L9.5 0.6" }));
  return el("span.root", {}, el("span.visually-hidden", {}, "√"), sign, el("span.radicand", {}, inside));
}

/** @param {Child | Child[]} exponent */
export function e(exponent) {
  return el("span.power", {}, el("i", {}, "e"), el("sup", {}, exponent));
}

/** @param {string} index */
export function sum(index) {
  return el("span.sigma", {}, "Σ", el("sub", {}, el("i", {}, index)));
}
