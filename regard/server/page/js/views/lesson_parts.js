// Parts of the lesson panel: the list of lessons, the task, the buttons below the story, and what it waits for.

import { el } from "../dom.js";
import { formula, root, v } from "../formula.js";
import { LESSONS, whyClosed } from "../lessons.js";

/** @typedef {import("../app.js").App} App */

/**
 * Colored terms, formulas and keys that texts refer to.
 * @param {App} app
 */
export function termsOf({ t }) {
  const term = (/** @type {string} */ role, /** @type {import("../messages.js").MessageKey} */ name) => () => el(`b.term.${role}`, {}, t(name));
  const press = (/** @type {string} */ text) => el("kbd", {}, text);
  const additive = () => formula("v · tanh(W_q q + W_k k)", v("v"), " · tanh(", v("W", "q"), " ", v("q"), " + ", v("W", "k"), " ", v("k"), ")");
  return {
    additive,
    ...{ q: term("query", "termQuery"), k: term("key", "termKey"), v: term("value", "termValue"), w: term("weight", "termWeight") },
    ...{ root: () => formula("√d_k", root(v("d", "k"))), dk: () => formula("d_k", v("d", "k")), wo: () => formula("W_O", v("W", "O")), left: press("←"), right: press("→") },
  };
}

/**
 * All lessons; those that are done have a check mark, those that cannot be opened say why.
 * @param {App} app
 * @param {number} number the open one
 * @param {(number: number) => void} open
 */
export function courseList(app, number, open) {
  return el("ol", {}, LESSONS.map((lesson, i) => {
    const done = app.store.state.learned.includes(lesson.name);
    const why = whyClosed(app, lesson);
    const button = el("button", { "aria-current": i + 1 === number ? "page" : undefined, "aria-disabled": why ? "true" : undefined, "data-lesson": lesson.name, "data-done": String(done), onclick: () => !why && open(i + 1) },
      el("span.n", {}, String(i + 1)), el("span.name", {}, app.t(lesson.title)), el("span.tick", {}, done ? "✓" : "", done ? el("span.visually-hidden", {}, app.t("lessonDone")) : ""));
    return el("li", {}, button, why ? el("p.note", {}, why) : "");
  }));
}

/**
 * The task, and below it the line with the reader's own numbers.
 * @param {App} app
 * @param {(Node | string)[]} text
 * @param {import("../course/parts.js").Progress} progress
 * @param {boolean} before whether it was done in an earlier one
 */
export function taskBlock({ t }, text, { first, done, closing }, before) {
  return el("div.task-block", {},
    el("h3", {}, t("lessonTask")),
    el("p.task", { "data-done": String(done), "data-ready": first ? "true" : undefined }, el("span.tick", { "aria-hidden": "true" }, done || before ? "✓" : "→"), el("span", {}, text)),
    el("p.done-note", { "data-says": "" }, done ? el("b", {}, t("lessonDone"), " ") : "", el("span.closing", {}, closing)));
}

/**
 * Buttons to the paragraphs and to the other lessons.
 * @param {App} app
 * @param {number} number
 * @param {{ active: number, count: number, done: boolean }} at
 * @param {{ goTo: (step: number) => void, open: (number: number) => void }} act
 */
export function navigation({ t }, number, { active, count, done }, { goTo, open }) {
  const step = (/** @type {number} */ by, /** @type {string} */ sign) => {
    const to = active + by;
    const title = t("lessonStep", { n: Math.min(Math.max(to, 0), count - 1) + 1, of: count });
    return el("button.icon", { title, "aria-label": title, "data-go": by > 0 ? "down" : "up", "aria-disabled": to < 0 || to >= count ? "true" : undefined, onclick: () => to >= 0 && to < count && goTo(to) }, sign);
  };
  const last = number === LESSONS.length;
  return [
    count ? [step(-1, "↑"), el("span.small.digits", {}, `${active + 1}/${count}`), step(1, "↓")] : [],
    el("span.gap"),
    number > 1 ? el("button.quiet", { "data-go": "back", title: t("lessonBack"), "aria-label": t("lessonBack"), onclick: () => open(number - 1) }, "‹") : "",
    el(done ? "button.run" : "button.quiet", { "data-go": "on", onclick: () => open(number + 1) }, t(last ? "lessonEnd" : done ? "lessonNext" : "lessonSkip"), last ? "" : " ›"),
  ].flat();
}

/**
 * @param {string} name
 * @returns {import("../course/parts.js").Progress}
 */
export function newProgress(name) {
  return { name, first: null, heads: new Set(), sources: new Set(), temperature: { low: false, high: false }, own: {}, guesses: new Map(), done: false, closing: "" };
}

/**
 * The card that covers the picture before a guess; an image can be seen, or a reader could not guess.
 * @param {App} app
 * @param {boolean} narrow
 */
export function veil({ t, about }, narrow) {
  const text = el("p", {}, t(narrow ? "lessonVeilNarrow" : "lessonVeil"));
  if (!about.image) return el("div.veil", {}, el("span", { "aria-hidden": "true" }, "?"), text);
  const { width, height, rgb } = about.image;
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { width, height, role: "img", "aria-label": t("view_image") }));
  const pixels = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) pixels.data.set([rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2], 255], 4 * i);
  canvas.getContext("2d")?.putImageData(pixels, 0, 0);
  return el("div.veil", {}, canvas, text);
}

/**
 * Wait until the page has been built for the first time.
 * @param {HTMLElement} root
 * @returns {Promise<void>}
 */
export async function whenReady(root) {
  do await new Promise((done) => setTimeout(done, 20));
  while (!root.dataset.ready);
}

/**
 * Wait until changes of the state are shown.
 * @param {HTMLElement} root
 */
export async function settled(root) {
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
  await frame();
  while (root.getAttribute("aria-busy") === "true") await frame();
}

/**
 * Draw the page again after a figure or a veil: it was drawn without a size.
 * @param {App} app
 */
export async function uncover({ root, redraw }) {
  redraw?.();
  await settled(root);
  root.querySelector(".flow-details:not([hidden])")?.scrollIntoView({ block: "nearest" });
}
