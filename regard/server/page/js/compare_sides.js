// The two sides of a comparison: a head of the open run, and a head of another run.

import { correspond } from "./compare_spec.js";
import { computeTables } from "./head.js";
import { isLarge } from "./selection.js";
import { querySide, ticksOf } from "./tokens.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./source.js").About} About
 * @typedef {import("./source.js").Site} Site
 * @typedef {import("./head.js").Tables} Tables
 * @typedef {import("./tokens.js").Tick} Tick
 * @typedef {import("./compare_spec.js").Comparison} Comparison
 * @typedef {import("./compare_spec.js").Matching} Matching
 */

/**
 * One side: a head of a run.
 * @typedef {object} Side
 * @property {About & { asked?: any, answer?: any }} about
 * @property {Site} site
 * @property {number} head
 * @property {Tables} tables
 * @property {Tick[]} rows
 * @property {Tick[]} columns
 */

/**
 * @typedef {object} Sides
 * @property {Comparison} spec
 * @property {Side} first
 * @property {Side} second
 * @property {Matching} rows
 * @property {Matching} columns
 * @property {boolean} moved whether the second run does not have the head of the first
 */

/** Raised if there is nothing to compare; its message is a key of the catalog. */
export class CannotCompare extends Error {
  /** @param {"compareTooLong" | "compareGone"} reason */
  constructor(reason) {
    super(reason);
    this.reason = reason;
  }
}

/**
 * Load the second side of a comparison.
 * @param {App} app
 * @param {Comparison} spec
 * @returns {Promise<Sides>}
 */
export async function loadSides(app, spec) {
  if (app.open.large) throw new CannotCompare("compareTooLong");
  const first = firstSide(app, spec);
  const { side: second, moved } = spec.kind === "edited" ? { side: { ...first, tables: app.open.recomputed?.tables ?? app.open.after }, moved: false } : await secondSide(app, spec);
  const labels = (/** @type {Tick[]} */ ticks) => ticks.map((tick) => tick.label);
  return {
    ...{ spec, first, second, moved },
    rows: correspond(labels(first.rows), labels(second.rows)),
    columns: correspond(labels(first.columns), labels(second.columns)),
  };
}

/**
 * Return the open head, before the edits if it is compared with the edited run.
 * @param {App} app
 * @param {Comparison} spec
 * @returns {Side}
 */
function firstSide({ about, open }, { kind }) {
  const { site, head, rows, columns } = open;
  return { about, site, head, rows, columns, tables: kind === "edited" ? open.before : open.after };
}

/**
 * @param {App} app
 * @param {Comparison} spec
 */
async function secondSide(app, spec) {
  const source = spec.kind === "head" ? app.source : ((await app.source.other?.(spec)) ?? null);
  if (!source) throw new CannotCompare("compareGone");
  const [about, sites] = await Promise.all([source.about(), source.sites()]);
  const path = spec.kind === "head" ? (spec.site ?? app.open.site.path) : app.open.site.path;
  const wanted = spec.kind === "head" ? (spec.head ?? 0) : app.open.head;
  const known = sites.find((one) => one.path === path && wanted < one.n_heads);
  const site = known ?? sites.find((one) => one.path === about.start.site) ?? sites[0];
  const head = known ? wanted : about.start.head;
  if (isLarge(site)) throw new CannotCompare("compareTooLong");
  const tables = computeTables(site, head, await source.vectors(site.path, head));
  const rows = ticksOf(about, querySide(site), site.n_query);
  return { side: { about, site, head, tables, rows, columns: ticksOf(about, site.answers, site.n_key) }, moved: !known };
}

/**
 * Return whether both sides have tables of the same shape.
 * @param {Sides} sides
 */
export function haveSameShape({ first, second }) {
  return first.site.n_query === second.site.n_query && first.site.n_key === second.site.n_key;
}

/**
 * Return the position of the second side for one of the first, −1 if there is none.
 * @param {Sides} sides
 * @param {number} query
 * @param {number} key
 */
export function placeInSecond({ rows, columns }, query, key) {
  return { query: rows.to[query] ?? -1, key: columns.to[key] ?? -1 };
}
