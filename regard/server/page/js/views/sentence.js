// One sentence that says what is seen.

import { el } from "../dom.js";
import { short } from "../format.js";
import { row } from "../matrix.js";
import { lineAt } from "../selection.js";
import { gatheredTable, tickAt } from "../tokens.js";
import { axesOf } from "./plot.js";

/** @typedef {import("../app.js").App} App */

const ENOUGH = 0.6;
const FEW = 3;

/**
 * "When writing schläft, this head looks at sleep and ‑ing."
 * @param {App} app
 * @param {number} query a position
 * @returns {(Node | string)[]}
 */
export function sentence(app, query) {
  const { open, say } = app;
  const { rows, columns } = axesOf(app);
  const { site, after } = open;
  const whole = rows.length === site.n_query && columns.length === site.n_key;
  const i = tickAt(rows, query);
  const line = whole ? lineAt(app, query).weights.data : row(gatheredTable(after.weights, rows, columns, true), i);
  const asker = term("query", rows[i].label);
  if (after.off) return say.parts("seeOff", { query: asker });
  const { keys, sum } = heaviest(line);
  if (!sum) return say.parts("seeNothing", { query: asker });
  const self = site.asks !== null && site.asks === site.answers && keys.length === 1 && keys[0] === i;
  if (self) return say.parts("seeItself", { query: asker, sum: short(sum) });
  if (line[keys[0]] < Math.max(0.12, 1.6 / line.length)) {
    return say.parts("seeSpread", { query: asker, n: line.length, most: short(line[keys[0]]) });
  }
  return say.parts(frameOf(site), { query: asker, keys: listed(app, keys.map((j) => term("key", columns[j].label))), sum: short(sum) });
}

/**
 * The fewest keys, at most three, that make up most of the weight.
 * @param {Float32Array} line
 */
function heaviest(line) {
  const order = Array.from(line.keys()).sort((a, b) => line[b] - line[a]);
  const keys = [];
  let sum = 0;
  for (const j of order) {
    if (keys.length === FEW || sum >= ENOUGH || (keys.length && line[j] < line[order[0]] / 4)) break;
    keys.push(j);
    sum += line[j];
  }
  return { keys, sum };
}

/** @param {import("../source.js").Site} site */
function frameOf(site) {
  if (site.group.endsWith("cross")) return "seeCross";
  return site.group.startsWith("decoder") ? "seeBack" : "seeSelf";
}

/**
 * @param {string} role
 * @param {string} label
 */
function term(role, label) {
  return el(`b.term.${role}`, {}, label);
}

/**
 * @param {App} app
 * @param {Node[]} terms
 */
function listed(app, terms) {
  return terms.flatMap((one, i) => (i === 0 ? [one] : [i === terms.length - 1 ? app.say("and") : ", ", one]));
}
