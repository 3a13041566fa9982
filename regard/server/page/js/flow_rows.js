// Rows of the residual stream, from arrays named as the server names them.

import { matrix } from "./matrix.js";
import { markContinued } from "./tokens.js";

/**
 * @typedef {import("./source.js").FlowSide} FlowSide
 * @typedef {import("./source.js").FlowRows} FlowRows
 * @typedef {import("./arrays.js").NamedArray} NamedArray
 */

/** Positions are requested in blocks of this size, at most two blocks at once. */
const BLOCK = 128;
export const ROWS_AT_ONCE = 2 * BLOCK;

/**
 * Return the least and the largest height of a row.
 * @param {Pick<import("./source.js").About, "image">} about
 * @returns {[number, number]}
 */
export function rowRange(about) {
  return about.image ? [10, 30] : [15, 34];
}

/**
 * Return how many rows the first request is for: only what can be seen.
 * @param {Pick<import("./source.js").About, "image">} about
 */
export function firstRowCount(about) {
  return Math.min(ROWS_AT_ONCE, Math.ceil(innerHeight / rowRange(about)[0]));
}

/**
 * Load rows of all sides.
 * @param {import("./source.js").Flow} flow
 * @param {number[]} firsts the first row of each side that is wanted
 * @returns {Promise<FlowRows[]>}
 */
export function loadRows(flow, firsts, count = ROWS_AT_ONCE) {
  return Promise.all(flow.sides.map((side, s) => {
    const block = BLOCK * Math.floor(Math.min(firsts[s], side.n_tokens - 1) / BLOCK);
    return flow.rows(side, block, Math.min(side.n_tokens, block + Math.min(count, flow.limit)));
  }));
}

/**
 * Request what the flow shows first; resolved when it is requested, so that the server computes it while
 * the page computes the tables of the open head, which are requested too.
 * @param {import("./source.js").Source} source
 * @param {import("./source.js").About} about
 * @param {import("./state.js").State} state
 */
export async function prefetchFlow(source, about, { page, edits, site, head }) {
  if (page !== "flow" || edits.length || !source.model) return;
  const found = source.flow([]);
  source.vectors(site, head).catch(() => null); // errors are reported when it is drawn
  const flow = await found.catch(() => null);
  if (flow) loadRows(flow, [0, 0], firstRowCount(about)).catch(() => null);
}

/**
 * Return the rows of a side, from arrays named as the server names them.
 * @param {FlowSide} side
 * @param {number} start
 * @param {number} stop
 * @param {Record<string, NamedArray>} found
 * @param {string[][]} names of the predicted tokens
 * @returns {FlowRows}
 */
export function flowRows(side, start, stop, found, names) {
  /** @type {FlowRows} */
  const rows = { start, stop, norm: {}, added: {}, strip: {}, lines: {}, predictions: null };
  const table = (/** @type {string} */ name) => matrix(found[name].shape[0], found[name].shape[1], /** @type {Float32Array} */ (found[name].data));
  const lines = (/** @type {string} */ name) =>
    ({ keys: table(`${name}_keys`), weights: table(`${name}_weights`), heads: found[`${name}_heads`] ? table(`${name}_heads`) : null });
  for (const { path, site } of side.stations) {
    rows.norm[path] = /** @type {Float32Array} */ (found[`${path}.norm`].data);
    rows.strip[path] = table(`${path}.strip`);
    if (found[`${path}.added`]) rows.added[path] = /** @type {Float32Array} */ (found[`${path}.added`].data);
    if (site) rows.lines[site] = { mean: lines(`${site}.mean`), top: lines(`${site}.top`) };
  }
  const chances = found["predictions.probabilities"];
  if (chances && names.length) {
    const count = chances.shape[1];
    rows.predictions = names.map((row, i) => row.map((name, n) => ({ name, probability: chances.data[i * count + n] })));
    markContinued(rows.predictions.flat());
  }
  return rows;
}
