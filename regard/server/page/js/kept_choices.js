// What the reader has chosen and keeps: the head, the row, the view and the edits. What does not apply
// to the trace that is shown rests, with the reason, until it applies again.

import { editedSite } from "./edits.js";
import { computeRow } from "./head.js";
import { largest, row } from "./matrix.js";
import { viewsOf } from "./selection.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./state.js").State} State
 * @typedef {import("./edits.js").Edit} Edit
 * @typedef {import("./messages.js").MessageKey} MessageKey
 * @typedef {Pick<App, "about" | "sites" | "refused">} Trace
 */

/**
 * Return a head as text for the state, as "PATH@HEAD".
 * @param {{ site: string, head: number }} place
 */
export function nameHead({ site, head }) {
  return `${site}@${head}`;
}

/**
 * Return the head that the reader keeps; null if the page chooses.
 * @param {string} kept
 * @returns {{ site: string, head: number } | null}
 */
export function keptHead(kept) {
  const [, site, head] = /^(.+)@(\d+)$/.exec(kept) ?? [];
  return site ? { site, head: Number(head) } : null;
}

/**
 * Return whether a trace has a head.
 * @param {Pick<App, "sites">} trace
 * @param {{ site: string, head: number } | null} place
 */
export function hasHead({ sites }, place) {
  const site = sites.find((one) => one.path === place?.site);
  return site !== undefined && /** @type {{ head: number }} */ (place).head < site.n_heads;
}

/**
 * Return why an edit does not apply to a trace; null if it does.
 * @param {Trace} trace
 * @param {Edit} edit
 * @returns {{ key: MessageKey, values: Record<string, string | number> } | { error: unknown } | null}
 */
export function whyResting({ about, sites, refused }, edit) {
  const error = refused?.get(JSON.stringify(edit));
  if (error) return { error };
  if (edit.kind === "token") {
    const tokens = about.tokens[edit.side];
    if (!tokens || about.image) return { key: "restingTokens", values: {} };
    return edit.position < tokens.length ? null : { key: "restingPosition", values: { position: edit.position } };
  }
  const path = editedSite(edit);
  const site = sites.find((one) => one.path === path);
  if (!site) return edit.kind === "patch" || path.includes("*") ? null : { key: "restingSite", values: { site: path } };
  const { head = 0, query = 0, key = 0, position = 0 } = /** @type {Record<string, any>} */ (edit);
  if (head >= site.n_heads) return { key: "restingHead", values: { head } };
  const missing = [query, position].find((row) => row >= site.n_query) ?? (key >= site.n_key ? key : null);
  return missing === null ? null : { key: "restingPosition", values: { position: missing } };
}

/**
 * Return the state with its edits divided into those that apply to a trace and those that rest.
 * @param {Trace} trace
 * @param {State} state
 * @returns {State}
 */
export function divideEdits(trace, state) {
  const all = [...state.edits, ...state.resting];
  if (!all.length) return state;
  const applies = all.map((edit) => whyResting(trace, edit) === null);
  const [edits, resting] = [all.filter((_, i) => applies[i]), all.filter((_, i) => !applies[i])];
  const same = edits.length === state.edits.length && edits.every((edit, i) => edit === state.edits[i]);
  return same && resting.length === state.resting.length ? state : { ...state, edits, resting };
}

/**
 * Return the state for another trace: head, row, view and edits stay where the reader chose them.
 * @param {Pick<App, "about" | "sites">} trace
 * @param {State} state of the old trace
 * @param {App["about"]} before
 * @param {State["view"]} wished the view that the reader chose, which the old trace may not have had
 * @returns {State}
 */
export function carryOver({ about, sites }, state, before, wished) {
  const kept = keptHead(state.kept);
  const stays = hasHead({ sites }, kept);
  const place = kept && stays ? kept : about.start;
  const groupOf = (/** @type {string} */ path) => path.replace(/\.\d+\./, ".*.");
  const sameRows = (state.pinned || stays) && groupOf(place.site) === groupOf(state.site);
  const own = place.site === about.start.site && place.head === about.start.head;
  const cell = sameRows ? { query: state.query, key: state.pinned ? state.key : LARGEST } : { query: own ? about.start.query : 0, key: own ? about.start.key : LARGEST, pinned: false };
  const site = sites.find((one) => one.path === place.site);
  const views = site ? viewsOf({ about }, site) : [];
  const view = about.image && !before.image ? "image" : views.includes(wished) ? wished : state.view;
  return { ...state, site: place.site, head: place.head, ...cell, view };
}

/** A key to be replaced by the one with the largest weight, when the head is open. */
const LARGEST = Number.MAX_SAFE_INTEGER;

/**
 * Return the key of a state, or the one with the largest weight if the row does not have it.
 * @param {App["open"]} open
 * @param {State} state
 */
export function keyOrLargest(open, { query, key }) {
  return key < open.site.n_key ? key : largestKey(open, Math.min(query, open.site.n_query - 1));
}

/**
 * Return the key with the largest weight of a query.
 * @param {App["open"]} open
 * @param {number} query
 */
export function largestKey(open, query) {
  const weights = open.large ? computeRow(open.site, open.head, open.vectors, query).weights.data : row(open.after.weights, query);
  return weights.indexOf(largest(weights));
}
