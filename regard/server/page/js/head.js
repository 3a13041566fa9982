// The tables of one head: as the model computed them, and after edits.

import { allowedRow, allowedTable, compare, compareAdditively, masked, scaled, softmax } from "./attention.js";
import { matrix, mixture, row } from "./matrix.js";

/**
 * @typedef {import("./matrix.js").Matrix} Matrix
 * @typedef {import("./source.js").Site} Site
 * @typedef {import("./source.js").Vectors} Vectors
 * @typedef {import("./source.js").Stage} Stage
 * @typedef {import("./edits.js").Changes} Changes
 */

/**
 * The tables of one head; null if its form of attention does not have them.
 * @typedef {object} Tables
 * @property {Matrix | null} compared
 * @property {Matrix | null} scores
 * @property {Matrix | null} masked
 * @property {Matrix} weights
 * @property {number} scale
 * @property {number} temperature
 * @property {Uint8Array | null} allowed
 * @property {boolean} off whether the head is switched off: its context is 0
 */

/** Larger tables are not kept in memory; the page requests tiles of them. */
export const MAX_CELLS = 1_200_000;

/**
 * Compute the tables of a head, with edits if there are any.
 * @param {Site} site
 * @param {number} head
 * @param {Vectors} vectors
 * @param {Changes | null} [changes]
 * @param {Tables | null} [before] the tables without edits, whose comparisons are reused
 * @returns {Tables}
 */
export function computeTables(site, head, vectors, changes = null, before = null) {
  const allowed = before ? before.allowed : allowedTable(vectors.mask, site.n_query, site.n_key);
  const compared = before ? before.compared : comparisons(site, vectors);
  const onlyTemperature = before?.masked && changes && !changes.unscaled && !changes.mean && ![changes.scores, changes.cells, changes.weights].some((list) => list.length);
  if (!onlyTemperature) return finishTables(site, head, vectors, { compared, allowed, changes, first: 0 });
  const temperature = changes.temperature ?? before.temperature; // everything else is unchanged
  return { ...before, temperature, weights: softmax(/** @type {Matrix} */ (before.masked), temperature), off: changes.off };
}

/**
 * Compute the tables of one query, for heads that are too large to keep in memory.
 * @param {Site} site
 * @param {number} head
 * @param {Vectors} vectors
 * @param {number} query
 * @returns {Tables}
 */
export function computeRow(site, head, vectors, query) {
  const only = (/** @type {Matrix | null} */ table) => table && matrix(1, table.columns, row(table, query));
  const own = {
    ...vectors,
    query: /** @type {Matrix} */ (only(vectors.query)),
    compareQuery: only(vectors.compareQuery),
    scores: only(vectors.scores),
    weights: only(vectors.weights),
  };
  const allowed = allowedRow(vectors.mask, query, site.n_key);
  return finishTables(site, head, own, { compared: comparisons(site, own), allowed, changes: null, first: query });
}

/**
 * Compute scores, masked scores and weights from comparisons.
 * @param {Site} site
 * @param {number} head
 * @param {Vectors} vectors
 * @param {{ compared: Matrix | null, allowed: Uint8Array | null, changes: Changes | null, first: number }} given
 * @returns {Tables}
 */
function finishTables(site, head, vectors, { compared, allowed, changes, first }) {
  const scale = changes?.unscaled ? 1 : site.scale;
  const temperature = changes?.temperature ?? site.temperature[head];
  const seen = changes?.cells.length ? withMaskCells(site, allowed, changes.cells) : allowed;
  const ahead = first + site.n_key - site.n_query; // cached keys come before the first query
  const computed = vectors.scores ?? (compared && scaled(compared, scale, site.slopes?.[head] ?? 0, ahead));
  const scores = computed && changes?.scores.length ? withScores(computed, changes.scores) : computed;
  const hidden = scores && masked(scores, seen);
  const given = changes && hidden ? null : vectors.weights;
  const computedWeights = given ?? softmax(/** @type {Matrix} */ (hidden), temperature);
  const set = changes?.weights.length ? withScores(computedWeights, changes.weights) : computedWeights;
  const weights = changes?.mean ? averageRows(set) : set;
  return { compared, scores, masked: hidden, weights, scale, temperature, allowed: seen, off: changes?.off ?? false };
}

/**
 * @param {Site} site
 * @param {Vectors} vectors
 * @returns {Matrix | null}
 */
function comparisons(site, vectors) {
  if (vectors.scores || EFFICIENT_FORMS.has(site.similarity)) return null;
  const query = vectors.compareQuery ?? vectors.query;
  const key = vectors.compareKey ?? vectors.key;
  return vectors.compareWeight ? compareAdditively(query, key, vectors.compareWeight) : compare(query, key);
}

/**
 * Replace every row by the mean of all rows.
 * @param {Matrix} weights
 */
export function averageRows({ rows, columns, data }) {
  const mean = new Float32Array(columns);
  data.forEach((x, at) => (mean[at % columns] += x / rows));
  return matrix(rows, columns, Float32Array.from(data, (_, at) => mean[at % columns]));
}

/**
 * @param {Matrix} scores
 * @param {Changes["scores"]} cells
 */
function withScores(scores, cells) {
  const made = matrix(scores.rows, scores.columns, scores.data.slice());
  for (const { query, key, value } of cells) {
    if (query < made.rows && key < made.columns) made.data[query * made.columns + key] = value;
  }
  return made;
}

/** Efficient forms of attention, which have no scores for single pairs; only their weights are known. */
export const EFFICIENT_FORMS = new Set(["efficient", "linformer", "performer", "reformer", "longformer"]);

/**
 * @param {Site} site
 * @param {Uint8Array | null} allowed
 * @param {Changes["cells"]} cells
 */
function withMaskCells(site, allowed, cells) {
  const made = allowed ? allowed.slice() : new Uint8Array(site.n_query * site.n_key).fill(1);
  for (const cell of cells) {
    if (cell.query < site.n_query && cell.key < site.n_key) {
      made[cell.query * site.n_key + cell.key] = Number(cell.allowed);
    }
  }
  return made;
}

/**
 * @param {Tables} tables
 * @param {Stage} stage
 * @returns {Matrix}
 */
export function stageOf(tables, stage) {
  return tables[stage] ?? tables.weights;
}

/**
 * Return the context vector of a query.
 * @param {Tables} line the tables of one query
 * @param {Vectors} vectors
 * @param {number} query
 * @param {boolean} edited
 * @returns {Float64Array}
 */
export function contextOf(line, vectors, query, edited) {
  if (line.off) return new Float64Array(vectors.value.columns);
  if (vectors.context && !edited) return Float64Array.from(row(vectors.context, query));
  return mixture(line.weights.data, vectors.value);
}

/**
 * Return the tables of one query.
 * @param {Tables} tables
 * @param {number} query
 * @returns {Tables}
 */
export function rowOf(tables, query) {
  const only = (/** @type {Matrix | null} */ table) => table && matrix(1, table.columns, row(table, query));
  const n = tables.weights.columns;
  return {
    ...tables,
    ...{ compared: only(tables.compared), scores: only(tables.scores), masked: only(tables.masked) },
    weights: /** @type {Matrix} */ (only(tables.weights)),
    allowed: tables.allowed && tables.allowed.subarray(query * n, (query + 1) * n),
  };
}
