// The two sides of a comparison: a head of the open run, and a head of another run.

import { correspond, exampleOf } from "./compare_spec.js";
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
 * @property {string[]} images names of the images of both sides; "" for texts and for images of the reader
 */

/** Raised if there is nothing to compare; its message is a key of the catalog. */
export class CannotCompare extends Error {
  /**
   * @param {"compareTooLong" | "compareTooManyPatches" | "compareGone" | "compareOtherPatches"} reason
   * @param {Record<string, string>} [values]
   */
  constructor(reason, values = {}) {
    super(reason);
    this.reason = reason;
    this.values = values;
  }
}

/**
 * Load the second side of a comparison.
 * @param {App} app
 * @param {Comparison} spec
 * @returns {Promise<Sides>}
 */
export async function loadSides(app, spec) {
  if (app.open.large) throw new CannotCompare(tooLong(app.about));
  const first = firstSide(app, spec);
  const { side: second, moved } = spec.kind === "edited" ? { side: { ...first, tables: app.open.recomputed?.tables ?? app.open.after }, moved: false } : await secondSide(app, spec);
  checkImages(first.about, second.about);
  const labels = (/** @type {Tick[]} */ ticks) => ticks.map((tick) => tick.label);
  return {
    ...{ spec, first, second, moved, images: await imageNames(app, first, second) },
    rows: correspond(labels(first.rows), labels(second.rows)),
    columns: correspond(labels(first.columns), labels(second.columns)),
  };
}

/** @param {About} about */
function tooLong({ image }) {
  return image ? "compareTooManyPatches" : "compareTooLong";
}

/**
 * Refuse images that are cut into different patches, and an image with a text.
 * @param {About} first
 * @param {About} second
 */
function checkImages({ image: a, title }, { image: b, title: other }) {
  if (!a && !b) return;
  if (!a || !b) throw new CannotCompare("compareGone");
  const grid = (/** @type {import("./source.js").Picture} */ { n_rows, n_columns }) => `${n_rows} × ${n_columns}`;
  if (grid(a) !== grid(b)) throw new CannotCompare("compareOtherPatches", { first: title, a: grid(a), second: other, b: grid(b) });
}

/**
 * Return the names of the images of both sides.
 * @param {App} app
 * @param {Side[]} sides
 */
async function imageNames(app, ...sides) {
  if (!app.about.image) return ["", ""];
  const models = (await app.source.choices?.())?.models ?? [];
  return sides.map(({ about: { asked } }) => {
    const { owner, number } = exampleOf(asked?.image, asked?.model);
    const examples = models.find((one) => one.name === owner)?.examples ?? [];
    return examples.find((one) => number && one.image === `example:${number}`)?.name ?? "";
  });
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
  if (isLarge(site)) throw new CannotCompare(tooLong(about));
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
