// The sentence below a pattern.

import { el } from "../dom.js";
import { short } from "../format.js";
import { row } from "../matrix.js";
import { rowAt } from "../selection.js";
import { wordTable, tickAt } from "../tokens.js";
import { axesOf } from "./plot.js";

/** @typedef {import("../app.js").App} App */

const ENOUGH_WEIGHT = 0.6;
const MAX_KEYS = 3;

/**
 * Describe one query: "When writing schläft, this head looks at sleep and ·ing."
 * @param {App} app
 * @param {number} query a position
 * @returns {(Node | string)[]}
 */
export function sentence(app, query) {
  const { open, t } = app;
  const { rows, columns } = axesOf(app);
  const { site, after } = open;
  const whole = rows.length === site.n_query && columns.length === site.n_key;
  const i = tickAt(rows, query);
  const line = whole ? rowAt(app, query).weights.data : row(wordTable(after.weights, rows, columns, true), i);
  const asker = term("query", rows[i].label);
  if (after.off) return t.parts("seeOff", { query: asker });
  const { keys, sum } = largestKeys(line);
  if (!sum) return t.parts("seeNothing", { query: asker });
  const self = site.asks !== null && site.asks === site.answers && keys.length === 1 && keys[0] === i;
  if (self) return t.parts("seeItself", { query: asker, sum: short(sum) });
  if (line[keys[0]] < Math.max(0.12, 1.6 / line.length)) {
    return t.parts("seeSpread", { query: asker, n: line.length, most: short(line[keys[0]]) });
  }
  return t.parts(messageFor(site), { query: asker, keys: joinTerms(app, keys.map((j) => term("key", columns[j].label))), sum: short(sum) });
}

/**
 * Return the fewest keys, at most three, that make up most of the weight.
 * @param {Float32Array} line
 */
function largestKeys(line) {
  const order = Array.from(line.keys()).sort((a, b) => line[b] - line[a]);
  const keys = [];
  let sum = 0;
  for (const j of order) {
    if (keys.length === MAX_KEYS || sum >= ENOUGH_WEIGHT || (keys.length && line[j] < line[order[0]] / 4)) break;
    keys.push(j);
    sum += line[j];
  }
  return { keys, sum };
}

/** @param {import("../source.js").Site} site */
function messageFor(site) {
  if (site.group.endsWith("cross")) return "seeCross";
  return site.group.startsWith("decoder") ? "seeBack" : "seeSelf";
}

/**
 * @param {string} role
 * @param {string} label
 */
function term(role, label) {
  const mark = /^[^\p{L}\p{N}]{1,2}$/u.test(label); // would read as punctuation of the sentence
  return el(`b.term.${role}`, {}, mark ? `“${label}”` : label);
}

/**
 * Join terms to a list: "a, b and c".
 * @param {App} app
 * @param {Node[]} terms
 */
export function joinTerms(app, terms) {
  return terms.flatMap((one, i) => (i === 0 ? [one] : [i === terms.length - 1 ? app.t("and") : ", ", one]));
}
