// Rows of the residual stream, from arrays named as the server names them.

import { matrix } from "./matrix.js";

/**
 * @typedef {import("./source.js").FlowSide} FlowSide
 * @typedef {import("./source.js").FlowRows} FlowRows
 * @typedef {import("./arrays.js").NamedArray} NamedArray
 */

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
  }
  return rows;
}
