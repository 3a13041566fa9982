// An efficient form of attention next to exact attention on the same vectors, and the error.

import { el, fill } from "../dom.js";
import { full, plainNumber, short } from "../format.js";
import { matrix, rangeOf, row } from "../matrix.js";
import { plotPlace, shortened } from "./plot.js";
import { drawTable, plotOfTable, tabSeparated } from "./tables.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("./tables.js").CustomView} CustomView
 * @typedef {import("./tables.js").Handlers} Handlers
 */

/** Below this width for each picture, they are stacked. */
const MIN_WIDTH = 190;
const MAX_ROWS = 60;

/**
 * Compute the error of approximate weights.
 * @param {Matrix} weights
 * @param {Matrix} exact
 */
export function errorOf(weights, exact) {
  const difference = matrix(weights.rows, weights.columns, weights.data.map((x, i) => x - exact.data[i]));
  const variation = new Float64Array(weights.rows);
  let [largest, sum] = [0, 0];
  for (let i = 0; i < difference.rows; i++) {
    for (const x of row(difference, i)) {
      largest = Math.max(largest, Math.abs(x));
      variation[i] += Math.abs(x) / 2;
    }
    sum += 2 * variation[i];
  }
  return { difference, largest, mean: sum / (difference.data.length || 1), variation };
}

/**
 * @param {HTMLElement} element
 * @param {App} app
 * @param {Matrix} exact
 * @param {Handlers} act
 * @returns {CustomView}
 */
export function draw(element, app, exact, act) {
  const { t, open } = app;
  const weights = open.before.weights;
  const error = errorOf(weights, exact);
  const form = t(/** @type {any} */ (`form_${open.site.similarity}`));
  const parts = /** @type {const} */ ([[form, weights, "weights"], [t("exactForm"), exact, "weights"], [t("difference"), error.difference, "scores"]]);
  const ranges = parts.map(([, table]) => rangeOf(table));
  const figures = parts.map(([name], i) => el("figure", {}, el("h3", {}, name, " ", el("span.range", {}, ranges[i].map((x) => short(x)).join(" … "))), plotPlace(app)));
  const across = Math.max(1, Math.min(3, Math.floor((element.clientWidth + 16) / (MIN_WIDTH + 16))));
  fill(element, errors(app, error), el("div.side-by-side", { style: { "--across": across } }, figures));
  const room = {
    ...{ alone: false, width: Math.floor((element.clientWidth - 16 * (across - 1)) / across) },
    height: Math.max(220, Math.floor(((element.parentElement?.clientHeight ?? 0) - 60) / Math.ceil(3 / across)) - 30),
  };
  const selects = parts.map(([, table, stage], i) => {
    const plot = { ...plotOfTable(app, table, room, act), stage: /** @type {import("../source.js").Stage} */ (stage) };
    if (stage === "weights") plot.range = [0, Math.max(ranges[0][1], ranges[1][1])]; // the same color is the same weight
    if (room.width < 300) Object.assign(plot, { asks: t("queriesShort"), answers: t("keysShort"), rows: plot.rows.map(clipped), columns: plot.columns.map(clipped) });
    return drawTable(/** @type {HTMLElement} */ (figures[i].lastElementChild), plot, null);
  });
  return {
    select: (query, key, peek) => selects.forEach((select) => select(query, key, peek)),
    says: (query) => t.parts("seeError", { query: el("b.term.query", {}, open.rows[query].label), form, share: short(error.variation[query]) }),
    reads: (query, key) => readout(app, weights, exact, query, key),
    table: () => tableOf(app, error),
    data: () => dataOf(app, weights, exact),
  };
}

/**
 * Shorten a label for a small picture.
 * @param {import("../tokens.js").Tick} tick
 */
function clipped(tick) {
  return { ...tick, label: shortened(tick.label, 7) };
}

/**
 * @param {App} app
 * @param {ReturnType<typeof errorOf>} error
 */
function errors({ t }, { largest, mean, variation }) {
  const average = variation.reduce((a, b) => a + b, 0) / (variation.length || 1);
  const one = (/** @type {import("../messages.js").MessageKey} */ word, /** @type {number} */ x, /** @type {import("../messages.js").MessageKey} */ help) =>
    el("span.figure", { title: t(help) }, el("i", {}, t(word)), " ", el("b", { title: full(x) }, short(x)));
  return el("p.errors", {}, one("errorLargest", largest, "errorLargestHelp"), one("errorMean", mean, "errorMeanHelp"), one("errorVariation", average, "errorVariationHelp"));
}

/**
 * @param {App} app
 * @param {Matrix} weights
 * @param {Matrix} exact
 * @param {number} query
 * @param {number} key
 */
function readout(app, weights, exact, query, key) {
  const { t, open } = app;
  const [x, y] = [row(weights, query)[key], row(exact, query)[key]];
  const write = app.peek ? full : short;
  const figure = (/** @type {string} */ name, /** @type {number} */ value) => el("span.figure", {}, el("i", {}, name), " ", el("b", { title: full(value) }, write(value)));
  return [
    el("span.who", {}, el("b.term.query", {}, open.rows[query].label), " → ", el("b.term.key", {}, open.columns[key].label)),
    figure(t("weight"), x), figure(t("exactWeight"), y), figure(t("difference"), x - y),
  ];
}

/**
 * @param {App} app
 * @param {ReturnType<typeof errorOf>} error
 */
function tableOf({ t, open }, { variation }) {
  const rows = open.rows.slice(0, MAX_ROWS).map((tick, i) => el("tr", {}, el("th", { scope: "row" }, tick.label), el("td", {}, short(variation[i]))));
  return el("table", {}, el("caption", {}, t("errorVariationHelp")), rows);
}

/**
 * @param {App} app
 * @param {Matrix} weights
 * @param {Matrix} exact
 */
function dataOf({ t, open }, weights, exact) {
  const lines = open.rows.flatMap((asks, i) =>
    open.columns.map((answers, j) => [asks.label, answers.label, plainNumber(row(weights, i)[j]), plainNumber(row(exact, i)[j])]));
  return tabSeparated([[t("queriesShort"), t("keysShort"), t("weight"), t("exactWeight")], ...lines]);
}
