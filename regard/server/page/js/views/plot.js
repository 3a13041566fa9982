// The data of one picture of a pattern, and helpers that all views share.

import { el } from "../dom.js";
import { stageOf } from "../head.js";
import { largestSize, rangeOf, row } from "../matrix.js";
import { groupWords, wordTable, tickAt } from "../tokens.js";

/**
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("../tokens.js").Tick} Tick
 * @typedef {import("../source.js").Stage} Stage
 * @typedef {import("../app.js").App} App
 * @typedef {import("../app.js").Open} Open
 * @typedef {import("../head.js").Tables} Tables
 */

/** @typedef {{ table: Matrix, kept: Uint8Array | null, off: boolean }} Version */

/**
 * One table with its labels. Rows are queries and columns keys, even if the axes are swapped.
 * @typedef {object} Plot
 * @property {Matrix} table
 * @property {Version} [before] the numbers before the edits, in the same picture
 * @property {(how: "halves" | "difference" | null) => void} [onoverlay] called with how a heat map shows both versions
 * @property {Stage} stage
 * @property {Tick[]} rows
 * @property {Tick[]} columns
 * @property {number} query index of the selected row
 * @property {number} key index of the selected column
 * @property {boolean} turned
 * @property {Uint8Array | null} allowed
 * @property {Uint8Array | null} kept cells that the filter shows
 * @property {Uint8Array | null} edited
 * @property {boolean} off
 * @property {[number, number]} range
 * @property {boolean} alone whether it is the only picture
 * @property {number} width
 * @property {number} height
 * @property {App["t"]} t
 * @property {string} asks title of the queries
 * @property {string} answers side of the keys
 * @property {(query: number, key: number) => void} onhover with indices; −1 when the mouse leaves
 * @property {(query: number, key: number) => void} onpick
 */

/**
 * Return the element that a picture is drawn in; it can be scrolled by keyboard.
 * @param {{ t: App["t"] }} app
 */
export function plotPlace({ t }) {
  return el("div.plot", { tabindex: 0, role: "group", "aria-label": t("pattern") });
}

/**
 * Return the plot of one stage, before or after edits.
 * @param {App} app
 * @param {Tables} tables
 * @param {Stage} stage
 * @returns {Omit<Plot, "alone" | "width" | "height" | "onhover" | "onpick">}
 */
export function plotOf(app, tables, stage) {
  const { state } = app.store;
  const { site } = app.open;
  const shown = cachedData(app, tables, stage);
  const { rows, columns } = shown;
  return {
    ...shown,
    ...{ stage, turned: state.turned, t: app.t, off: tables.off },
    range: tables.off && stage === "weights" ? [0, 0] : shown.range, // a head that is off takes nothing
    query: tickAt(rows, state.query),
    key: tickAt(columns, state.key),
    edited: editedCells(app, rows, columns),
    asks: app.t(site.group.endsWith("cross") && site.writes ? "queriesWriting" : "queriesAxis"),
    answers: app.t("keysAxis"),
  };
}

/** @type {WeakMap<Tables, Map<string, ReturnType<typeof computeData>>>} */
const CACHE = new WeakMap();

/**
 * Return the table, range and filter of a plot, cached.
 * @param {App} app
 * @param {Tables} tables
 * @param {Stage} stage
 */
function cachedData(app, tables, stage) {
  const { words, mass } = app.store.state;
  const known = CACHE.get(tables) ?? new Map();
  CACHE.set(tables, known);
  const place = `${stage} ${words} ${mass}`;
  if (!known.has(place)) known.set(place, computeData(app, tables, stage));
  return /** @type {ReturnType<typeof computeData>} */ (known.get(place));
}

/**
 * @param {App} app
 * @param {Tables} tables
 * @param {Stage} stage
 */
function computeData(app, tables, stage) {
  const { site, large } = app.open;
  const { rows, columns } = axesOf(app);
  const grouped = !large && (rows.length < site.n_query || columns.length < site.n_key);
  const whole = stageOf(tables, stage);
  const { mass } = app.store.state;
  const table = grouped ? wordTable(whole, rows, columns, stage === "weights") : whole;
  const weights = stage === "weights" ? table : grouped ? wordTable(tables.weights, rows, columns, true) : tables.weights;
  return {
    ...{ rows, columns, table, range: rangeOf(table) },
    allowed: grouped ? allowedWords(tables.allowed, rows, columns, site.n_key) : tables.allowed,
    kept: mass < 1 ? keepShare(weights, mass) : null,
  };
}

/** @type {WeakMap<Matrix, { before: Version, off: boolean, kept: Uint8Array | null, made: { table: Matrix, most: number } }>} */
const DIFFERENCES = new WeakMap();

/**
 * Return what the edits added to each cell that a filter shows, and the largest size of a change.
 * @param {Version} after
 * @param {Version} before
 */
export function differenceOf({ table, kept, off }, before) {
  const known = DIFFERENCES.get(table);
  if (known?.before.table === before.table && known.off === off && known.kept === kept && known.before.off === before.off) return known.made;
  const data = table.data.map((x, at) => (kept && !kept[at] && !before.kept?.[at] ? 0 : (off ? 0 : x) - (before.off ? 0 : before.table.data[at])));
  const made = { table: { ...table, data }, most: largestSize(data) };
  DIFFERENCES.set(table, { before, off, kept, made });
  return made;
}

/** Larger grids are heat maps instead of circles. */
const MAX_CIRCLES = 40;

/**
 * Return whether a grid has too many cells for circles.
 * @param {{ rows: Tick[], columns: Tick[] }} plot
 */
export function isHeatmap({ rows, columns }) {
  return Math.max(rows.length, columns.length) > MAX_CIRCLES;
}

/**
 * Return the labels of queries and keys: tokens or words.
 * @param {App} app
 */
export function axesOf(app) {
  const { open, about, store } = app;
  if (!store.state.words || open.large) return { rows: open.rows, columns: open.columns };
  return {
    rows: groupWords(about, open.asking, open.rows),
    columns: groupWords(about, open.site.answers, open.columns),
  };
}

/**
 * Return the fewest cells of each row that make up a share of its weight.
 * @param {Matrix} weights
 * @param {number} share
 */
export function keepShare(weights, share) {
  const kept = new Uint8Array(weights.data.length);
  for (let i = 0; i < weights.rows; i++) {
    const line = row(weights, i);
    const order = Array.from(line.keys()).sort((a, b) => line[b] - line[a]);
    let sum = 0;
    for (const j of order) {
      if (sum >= share - 1e-6) break;
      sum += line[j];
      if (line[j] > 0) kept[i * weights.columns + j] = 1;
    }
  }
  return kept;
}

/**
 * Return the mask of words: a word may see another if one of its tokens may.
 * @param {Uint8Array | null} allowed
 * @param {Tick[]} rows
 * @param {Tick[]} columns
 * @param {number} width
 */
function allowedWords(allowed, rows, columns, width) {
  if (!allowed) return null;
  const made = new Uint8Array(rows.length * columns.length);
  rows.forEach((up, i) => {
    columns.forEach((across, j) => {
      for (let a = up.first; a <= up.last; a++) {
        for (let b = across.first; b <= across.last; b++) {
          if (allowed[a * width + b]) made[i * columns.length + j] = 1;
        }
      }
    });
  });
  return made;
}

/**
 * @param {App} app
 * @param {Tick[]} rows
 * @param {Tick[]} columns
 */
function editedCells(app, rows, columns) {
  const { changes } = app.open;
  const cells = changes ? [...changes.cells, ...changes.scores, ...changes.weights] : [];
  if (!cells.length) return null;
  const made = new Uint8Array(rows.length * columns.length);
  for (const cell of cells) made[tickAt(rows, cell.query) * columns.length + tickAt(columns, cell.key)] = 1;
  return made;
}

/**
 * Shorten a label.
 * @param {string} label
 * @param {number} most in characters
 */
export function shortened(label, most = 14) {
  return label.length > most ? `${label.slice(0, most - 1)}…` : label;
}
