// Attention rollout: how much of each input token is in a token after several layers.

import { el, fill } from "../dom.js";
import { full, plainNumber, short } from "../format.js";
import { row } from "../matrix.js";
import { plotPlace } from "./plot.js";
import { joinTerms } from "./sentence.js";
import { drawTable, plotOfTable, tabSeparated } from "./tables.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("./tables.js").CustomView} CustomView
 * @typedef {import("./tables.js").Handlers} Handlers
 */

const MAX_KEYS = 3;
const MAX_ROWS = 60;

/**
 * @param {HTMLElement} element
 * @param {App} app
 * @param {Matrix} table
 * @param {Handlers} act
 * @returns {CustomView}
 */
export function draw(element, app, table, act) {
  const { t, open, store } = app;
  const holder = plotPlace(app);
  const unseen = store.state.edits.length && !app.about.live ? el("span", {}, t("withoutEdits")) : "";
  fill(element, layers(app), el("figure", {}, holder, el("figcaption", {}, el("span", {}, t("rolloutHow")), unseen)));
  const height = Math.max(220, (element.parentElement?.clientHeight ?? 0) - 72);
  const narrow = element.clientWidth < 420;
  const names = { asks: t(narrow ? "rolloutFollowedShort" : "rolloutFollowed"), answers: t(narrow ? "rolloutFromShort" : "rolloutFrom") };
  const plot = { ...plotOfTable(app, table, { width: element.clientWidth, height }, act), ...names };
  const select = drawTable(holder, plot, app);
  return {
    select,
    says: (query) => describe(app, table, query),
    reads: (query, key) => [
      el("span.who", {}, el("b.term.query", {}, open.rows[query].label), " ← ", el("b.term.key", {}, open.columns[key].label)),
      number(app, t("rolloutShare"), row(table, query)[key]),
      number(app, t("rolloutKept"), row(table, query)[query]),
    ],
    table: (query) => tableOf(app, table, query),
    data: () => tabSeparated([["", ...open.columns.map((tick) => tick.label)], ...open.rows.map((tick, i) => [tick.label, ...Array.from(row(table, i), plainNumber)])]),
  };
}

/**
 * Buttons for the last layer of the rollout.
 * @param {App} app
 */
function layers(app) {
  const { t, sites, open, store } = app;
  const stack = sites.filter((site) => site.group === open.site.group);
  const buttons = stack.map((site) =>
    el("button", { "aria-pressed": String(/** @type {number} */ (site.layer) <= /** @type {number} */ (open.site.layer)), "aria-current": site === open.site ? "true" : undefined, "aria-label": t("rolloutThrough", { layer: String(site.layer) }), onclick: () => store.set({ site: site.path }) }, site.layer));
  return el("div.view-tools.tools", {}, el("span", {}, t("rolloutLayers")), el("div.heads.stack", { role: "group", "aria-label": t("rolloutLayers") }, buttons));
}

/**
 * @param {App} app
 * @param {string} name
 * @param {number} x
 */
function number(app, name, x) {
  return el("span.figure", {}, el("i", {}, name), " ", el("b", { title: full(x) }, app.peek ? full(x) : short(x)));
}

/**
 * @param {App} app
 * @param {Matrix} table
 * @param {number} query
 */
function describe(app, table, query) {
  const line = row(table, query);
  const keys = order(line).filter((j) => j !== query).slice(0, MAX_KEYS);
  const own = short(line[query]);
  const asker = el("b.term.query", {}, app.open.rows[query].label);
  const sum = keys.reduce((total, j) => total + line[j], 0);
  if (!sum) return app.t.parts("seeRolloutAlone", { query: asker });
  return app.t.parts("seeRollout", { query: asker, own, keys: joinTerms(app, keys.map((j) => el("b.term.key", {}, app.open.columns[j].label))), sum: short(sum) });
}

/** @param {Float32Array} line */
function order(line) {
  return Array.from(line.keys()).sort((a, b) => line[b] - line[a]);
}

/**
 * @param {App} app
 * @param {Matrix} table
 * @param {number} query
 */
function tableOf({ open, t }, table, query) {
  const line = row(table, query);
  const rows = order(line).slice(0, MAX_ROWS).map((j) => el("tr", {}, el("th", { scope: "row" }, open.columns[j].label), el("td", {}, short(line[j]))));
  return el("table", {}, el("caption", {}, t("rolloutTable", { query: open.rows[query].label })), rows);
}
