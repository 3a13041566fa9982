// From the residual stream to the answer, on the local server: lenses and attributions.

import { requestJson } from "./http.js";
import { markContinued } from "./tokens.js";

/**
 * @typedef {import("./source.js").Lens} Lens
 * @typedef {import("./source.js").Attribution} Attribution
 * @typedef {import("./http_source.js").HttpSource} HttpSource
 */

/** Positions that a lens shows at once. */
export const LENS_WINDOW = 32;

/** @type {WeakMap<HttpSource, Map<string, Promise<any>>>} */
const KNOWN = new WeakMap();

/**
 * Return the lens of the window that contains a position.
 * @param {HttpSource} source
 * @param {number} position
 * @returns {Promise<Lens>}
 */
export function fetchLens(source, position) {
  const start = position - (position % LENS_WINDOW);
  return fetchOnce(source, "lens", { start, stop: start + LENS_WINDOW }, markNames);
}

/**
 * Mark the names of a lens that continue a word.
 * @param {Lens} lens
 */
function markNames(lens) {
  const named = Object.entries(lens.names).map(([id, name]) => ({ id, name }));
  markContinued(named);
  return { ...lens, names: Object.fromEntries(named.map(({ id, name }) => [id, name])) };
}

/**
 * @param {HttpSource} source
 * @param {{ position?: number, token?: number, relative_to?: number }} place
 * @returns {Promise<Attribution>}
 */
export function fetchAttribution(source, place) {
  return fetchOnce(source, "attribution", place);
}

/**
 * @param {HttpSource} source
 * @param {string} what
 * @param {Record<string, number | undefined>} given
 * @param {(found: any) => any} [read]
 */
function fetchOnce(source, what, given, read = (found) => found) {
  const known = KNOWN.get(source) ?? new Map();
  KNOWN.set(source, known);
  const entries = Object.entries(given).filter(([, value]) => value !== undefined);
  const key = `${what}?${new URLSearchParams(entries.map(([name, value]) => [name, String(value)]))}`;
  if (!known.has(key)) {
    const found = source.retry(() => requestJson(`/api/trace/${source.described.id}/${key}`)).then(read);
    found.catch(() => known.delete(key));
    known.set(key, found);
  }
  return known.get(key);
}
