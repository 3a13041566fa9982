// The figures of the course: pictures that the page itself does not have.

import { el, fill, rememberFocus } from "../dom.js";
import { bahdanau, heads } from "./lesson_figure_attention.js";
import { cost } from "./lesson_figure_cost.js";
import { beams, chances, sampling } from "./lesson_figure_output.js";
import { deviation, spread } from "./lesson_figure_spread.js";
import { embeddings, norm, pieces } from "./lesson_figure_vectors.js";
import { waves } from "./lesson_figure_waves.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../dom.js").Child} Child
 */

/**
 * What a figure gets: its place, what the reader has set in it, and whether it is still wanted.
 * @typedef {object} FigureContext
 * @property {number} width
 * @property {number} height
 * @property {Record<string, any>} own
 * @property {(own: Record<string, any>) => void} report
 */

/** @type {Record<string, (app: App, context: FigureContext) => Promise<{ title: Child, body: Child | Child[] }>>} */
const FIGURES = { pieces, embeddings, waves, norm, bahdanau, heads, deviation, spread, chances, sampling, beams, cost };

/**
 * Draw a figure; one that is no longer wanted when its numbers arrive is dropped.
 * @param {string} name
 * @param {App} app
 * @param {HTMLElement} element
 * @param {{ own: Record<string, any>, report: (own: Record<string, any>) => void, isLatest: () => boolean }} given
 */
export async function drawFigure(name, app, element, { own, report, isLatest }) {
  if (element.dataset.figure !== name) fill(element);
  element.dataset.figure = name;
  element.setAttribute("aria-busy", "true");
  const width = Math.max(280, (element.clientWidth || app.root.clientWidth) - 40);
  const height = Math.max(180, element.clientHeight - 60);
  try {
    const { title, body } = await FIGURES[name](app, { width, height, own, report });
    if (!isLatest()) return;
    const refocus = rememberFocus(element);
    fill(element, el("h3.figure-title", {}, title), body);
    refocus();
    showMark(element, own.mark ?? "");
    for (const part of [element, .../** @type {NodeListOf<HTMLElement>} */ (element.querySelectorAll(".scrolled"))]) makeScrollable(part);
  } catch (error) {
    if (isLatest()) fill(element, el("p.error", {}, app.t.error(error)));
  } finally {
    if (isLatest()) element.setAttribute("aria-busy", "false");
  }
}

/**
 * Highlight the part that a paragraph talks about, and bring it into view when the paragraph changes.
 * @param {HTMLElement} element
 * @param {string} mark
 */
function showMark(element, mark) {
  const isNew = element.dataset.mark !== mark;
  element.dataset.mark = mark;
  const part = isNew && mark ? element.querySelector(`[data-part~="${mark}"]`) : null;
  part?.scrollIntoView({ block: "start" });
}

/**
 * Let the keyboard reach a part of the picture that does not fit.
 * @param {HTMLElement} element
 */
function makeScrollable(element) {
  const scrolls = element.scrollHeight > element.clientHeight + 1 || element.scrollWidth > element.clientWidth + 1;
  if (scrolls) element.tabIndex = 0;
  else element.removeAttribute("tabindex");
}
