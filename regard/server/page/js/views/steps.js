// The steps pane: the computation from two vectors to one weight and its contribution.

import { el, fill } from "../dom.js";
import { plainNumber } from "../format.js";
import { contextOf } from "../head.js";
import { row } from "../matrix.js";
import { oneTabStop, rove } from "../radio_group.js";
import { rowAt } from "../selection.js";
import { answerStep } from "./attribution.js";
import { paneHead } from "./pane.js";
import { recycleCanvases } from "./step_parts.js";
import { joinStep, outputStep, residualStep, stackValues, valueStep } from "./steps_output.js";
import { compareStep, inputStep, maskStep, scaleStep, softmaxStep } from "./steps_weight.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Streams} Streams
 * @typedef {import("../head.js").Tables} Tables
 */

/**
 * The data that the steps show.
 * @typedef {object} StepContext
 * @property {App} app
 * @property {number} query
 * @property {number} key
 * @property {Tables} line this query's numbers, edits included
 * @property {Tables} old without edits
 * @property {import("../source.js").Vectors} vectors those of the run with edits, once it has finished
 * @property {Float64Array} context
 * @property {Streams | null} streams null until they are loaded
 * @property {number} width
 */

/** Delays in milliseconds: before incomplete steps are drawn, and while a slider moves. */
const LOAD_DELAY = 120;
const SLIDER_DELAY = 160;

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function steps(app) {
  const who = el("div.who");
  const body = el("div.step-list");
  const element = el("section.pane.steps", { "aria-label": app.t("steps") }, paneHead(app, "steps", who, () => dataOf(app)), body);
  highlight(body);
  let width = 0; // reading it each time would force a layout
  new ResizeObserver(() => (width = body.clientWidth)).observe(body);
  /** @type {{ place: string, recomputed: App["open"]["recomputed"], streams: Streams } | null} */
  let known = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let partialTimer;
  let stacked = ""; // the place whose values have been stacked
  const draw = (/** @type {Streams | null} */ streams) => {
    const { query, key } = at(app);
    clearTimeout(partialTimer);
    fill(who, el("b.term.query", {}, app.open.rows[query].label), " → ", el("b.term.key", {}, app.open.columns[key].label));
    replaceSteps(body, stepsOf(app, query, key, streams, (width ||= body.clientWidth) || 360));
    const moved = `${placeOf(app, query, key)} ${JSON.stringify(app.store.state.edits)}`;
    if (streams && !app.peek && moved !== stacked) stackValues(body); // not while the mouse moves
    if (streams && !app.peek) stacked = moved;
  };
  const show = () => {
    const { query, key } = at(app);
    const place = placeOf(app, query, key);
    const { recomputed } = app.open;
    clearTimeout(partialTimer);
    const waits = !recomputed && app.store.state.edits.length > 0 && app.source.model !== null && !app.open.large; // the model runs
    if (known?.place === place) draw(known.streams);
    else partialTimer = setTimeout(() => draw(null), element.dataset.ready ? LOAD_DELAY : 0);
    if (known?.place === place && (waits || known.recomputed === recomputed)) return;
    const found = recomputed ? recomputed.steps(query, key) : app.source.steps(app.open.site.path, app.open.head, query, key);
    app.whileBusy(found).then((streams) => {
      if (placeOf(app, at(app).query, at(app).key) !== place || app.open.recomputed !== recomputed) return;
      known = { place, recomputed, streams };
      draw(streams);
      element.dataset.ready = place;
    }, () => undefined); // no server: keep what is shown
  };
  // large matrices are loaded when the reader points at their result
  const loadProjections = () => {
    const mine = known;
    if (!mine?.streams.later) return;
    const { later } = mine.streams;
    mine.streams.later = null;
    app.whileBusy(later()).then((projections) => {
      mine.streams.projections = projections;
      if (known === mine) show();
    }, () => (mine.streams.later = later));
  };
  body.addEventListener("pointerover", loadProjections);
  body.addEventListener("focusin", loadProjections);
  let last = "";
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let waiting;
  return {
    element,
    update: (changed) => {
      const { query, key } = at(app);
      const now = placeOf(app, query, key);
      const only = changed.size === 1 && changed.has("peek");
      if (only && now === last) return;
      last = now;
      clearTimeout(waiting);
      const hurried = only ? 60 : changed.has("edits") ? SLIDER_DELAY : 0; // the mouse or a slider is moving
      waiting = setTimeout(show, element.dataset.ready ? hurried : 0); // the pattern is drawn first
    },
  };
}

/** Numbers that highlight their inputs. */
const NUMBERS = ".num[data-from]";

/**
 * Replace the steps that are shown.
 * @param {HTMLElement} body
 * @param {HTMLElement[]} made
 */
function replaceSteps(body, made) {
  const old = /** @type {HTMLCanvasElement[]} */ ([...body.querySelectorAll("canvas.strip")]);
  fill(body, made);
  oneTabStop(body.querySelectorAll(NUMBERS));
  recycleCanvases(old);
}

/**
 * Return the cell that the steps show: the hovered one until a cell is pinned.
 * @param {App} app
 */
function at({ store, peek }) {
  return store.state.pinned || !peek ? store.state : peek;
}

/**
 * @param {App} app
 * @param {number} query
 * @param {number} key
 */
function placeOf({ open }, query, key) {
  return `${open.site.path}:${open.head}:${query}:${key}`;
}

/**
 * @param {App} app
 * @param {number} query
 * @param {number} key
 * @param {Streams | null} streams
 * @param {number} width
 */
function stepsOf(app, query, key, streams, width) {
  const [line, old] = [rowAt(app, query), rowAt(app, query, "before")];
  const { vectors, context } = vectorsAt(app, line, query);
  const inputs = { app, query, key, line, old, vectors, context, streams, width: Math.max(160, width - 46) };
  const made = [inputStep(inputs), compareStep(inputs), scaleStep(inputs), maskStep(inputs), softmaxStep(inputs), valueStep(inputs), joinStep(inputs), outputStep(inputs), residualStep(inputs), answerStep(inputs)];
  return made.filter((one) => one !== null).map((one, i) => {
    one.querySelector(".n")?.replaceChildren(String(i + 1));
    return one;
  });
}

/**
 * Return the vectors of the head and the context vector of a query.
 * @param {App} app
 * @param {Tables} line
 * @param {number} query
 */
function vectorsAt({ open }, line, query) {
  const vectors = open.recomputed?.vectors ?? open.vectors;
  return { vectors, context: contextOf(line, vectors, query, open.changes !== null && !open.recomputed) };
}

/**
 * Highlight the inputs of the hovered number.
 * @param {HTMLElement} body
 */
function highlight(body) {
  rove(body, NUMBERS);
  const light = (/** @type {Event} */ event, /** @type {boolean} */ on) => {
    const target = /** @type {Element} */ (event.target).closest?.("[data-from]");
    if (!target) return;
    target.classList.toggle("asked", on);
    for (const name of (target.getAttribute("data-from") ?? "").split(" ")) {
      for (const one of body.querySelectorAll(`[data-name="${name}"]`)) one.classList.toggle("lit", on);
    }
  };
  body.addEventListener("pointerover", (event) => light(event, true));
  body.addEventListener("pointerout", (event) => light(event, false));
  body.addEventListener("focusin", (event) => light(event, true));
  body.addEventListener("focusout", (event) => light(event, false));
}

/** @param {App} app */
function dataOf(app) {
  const { query, key } = app.store.state;
  const { open } = app;
  const line = rowAt(app, query);
  const { vectors, context } = vectorsAt(app, line, query);
  const [q, k] = [row(vectors.query, query), row(vectors.key, key)];
  const rows = [
    ["query", open.rows[query].label, ...Array.from(q, plainNumber)],
    ["key", open.columns[key].label, ...Array.from(k, plainNumber)],
    ["compared", plainNumber(line.compared?.data[key] ?? NaN)],
    ["score", plainNumber(line.scores?.data[key] ?? NaN)],
    ["masked", ...Array.from(line.masked?.data ?? [], plainNumber)],
    ["weights", ...Array.from(line.weights.data, plainNumber)],
    ["context", ...Array.from(context, plainNumber)],
  ];
  return rows.map((one) => one.join("\t")).join("\n");
}
