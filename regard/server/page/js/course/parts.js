// What the lessons are made of: their types, and the numbers that their texts, guesses and closing lines need.

import { computeRow } from "../head.js";
import { row } from "../matrix.js";
import { querySide, ticksOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../state.js").State} State
 * @typedef {import("../source.js").Site} Site
 * @typedef {import("../messages.js").MessageKey} MessageKey
 * @typedef {Record<string, string | number>} Values
 */

/**
 * What the reader has done in the open lesson.
 * @typedef {object} Progress
 * @property {string} name of the lesson
 * @property {State | null} first the state when the task came up; null before that
 * @property {Set<string>} heads opened since then, as "SITE HEAD"
 * @property {Set<App["source"]>} sources traces seen since then
 * @property {{ low: boolean, high: boolean }} temperature whether it was below and above the model's
 * @property {Record<string, any>} own what the reader set in a figure of the lesson
 * @property {Map<number, Guessed>} guesses by step
 * @property {boolean} done whether the task was done in this visit
 * @property {string} closing the line with the reader's numbers
 */

/** @typedef {{ label: string, value: number, side?: string, at?: number }} Option */
/** @typedef {{ options: Option[], chosen: number, best: number }} Guessed */

/**
 * A question before the picture is shown: every option has a number of the computation.
 * @typedef {object} Guess
 * @property {MessageKey} ask
 * @property {(app: App) => Promise<Option[]>} options
 * @property {"largest" | "smallest"} [wanted]
 * @property {MessageKey} reveal its {best} and {value} are filled in
 */

/**
 * A paragraph, and the page that it talks about.
 * @typedef {object} Step
 * @property {MessageKey} text
 * @property {(app: App) => Partial<State> | Promise<Partial<State>>} [set] changes of state
 * @property {string} [figure] a figure of the course instead of the page
 * @property {Record<string, any>} [own] settings of the figure; `mark` names the part that the paragraph talks about
 * @property {Guess} [guess]
 */

/**
 * @typedef {object} Task
 * @property {(app: App) => MessageKey} text
 * @property {MessageKey} [touch] the same without keys
 * @property {(app: App) => Partial<State> | Promise<Partial<State>>} [set]
 * @property {string} [figure]
 * @property {Record<string, any>} [own]
 * @property {(app: App, progress: Progress) => boolean} done
 * @property {(app: App, progress: Progress) => Promise<{ text: MessageKey, values: Values }>} closing
 */

/**
 * @typedef {object} Lesson
 * @property {string} name CSS highlights its subject by it
 * @property {MessageKey} title
 * @property {string[]} models the first one that is served is opened; none if any trace will do
 * @property {string} [text] the sentence to open
 * @property {number} [example] or the number of an example of the model
 * @property {boolean} [replay] whether it needs a training run
 * @property {(app: App) => boolean} [fits] whether another trace will do as well
 * @property {(app: App) => Values | Promise<Values>} [facts] numbers in its texts
 * @property {Step[]} steps
 * @property {Task} task
 */

/** The state in which every paragraph starts: one head as a grid, nothing changed. */
/** @type {Partial<State>} */
export const PLAIN = { page: "explore", edits: [], drawing: false, editing: false, pane: "pattern", stage: "weights", view: "grid", turned: false, words: false, mass: 1, spot: "", split: false };

/**
 * Return the sites of a kind: "encoder self", "decoder self" or "cross".
 * @param {App} app
 * @param {RegExp} path
 */
export function sitesLike({ sites }, path) {
  return sites.filter((site) => path.test(site.path));
}

/**
 * Return a site that matches, the open one if none does.
 * @param {App} app
 * @param {RegExp} path
 * @param {number} [layer]
 * @returns {Site}
 */
export function siteLike(app, path, layer = 0) {
  const found = sitesLike(app, path);
  return found.find((site) => site.layer === layer) ?? found.at(-1) ?? app.sites.find((site) => site.path === app.about.start.site) ?? app.sites[0];
}

/**
 * Return the labels of the queries and keys of a site.
 * @param {App} app
 * @param {Site} site
 */
export function ticksOfSite({ about }, site) {
  return { rows: ticksOf(about, querySide(site), site.n_query), columns: ticksOf(about, site.answers, site.n_key) };
}

/**
 * Return the position of a token by its label; a usual one if the text does not have it.
 * @param {import("../tokens.js").Tick[]} ticks
 * @param {string} label
 * @param {number} [usual]
 */
export function positionOf(ticks, label, usual = 2) {
  const found = ticks.findIndex((tick) => tick.label === label);
  return found < 0 ? Math.min(usual, ticks.length - 1) : found;
}

/**
 * Return the tables of one query of any head, as the model computed them.
 * @param {App} app
 * @param {Site} site
 * @param {number} head
 * @param {number} query
 */
export async function tablesAt({ source }, site, head, query) {
  return computeRow(site, head, await source.vectors(site.path, head), query);
}

/**
 * Return the weights of one query of any head.
 * @param {App} app
 * @param {Site} site
 * @param {number} head
 * @param {number} query
 */
export async function weightsAt(app, site, head, query) {
  return (await tablesAt(app, site, head, query)).weights.data;
}

/**
 * Return the index of the largest number.
 * @param {ArrayLike<number>} values
 */
export function indexOfLargest(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/**
 * Return the selection of a head and a query, with the key that gets the largest weight.
 * @param {App} app
 * @param {Site} site
 * @param {number} head
 * @param {number} query
 */
export async function strongest(app, site, head, query) {
  const at = { site: site.path, head: Math.min(head, site.n_heads - 1), query: Math.min(query, site.n_query - 1) };
  return { ...at, key: indexOfLargest(await weightsAt(app, site, at.head, at.query)), pinned: true };
}

/**
 * Return the entropy of weights in bits.
 * @param {ArrayLike<number>} weights
 */
export function entropy(weights) {
  let sum = 0;
  for (let i = 0; i < weights.length; i++) if (weights[i] > 0) sum -= weights[i] * Math.log2(weights[i]);
  return sum;
}

/**
 * Return the options of "which key gets the most weight?".
 * @param {App} app
 * @param {Site} site
 * @param {ArrayLike<number>} weights
 * @param {(i: number) => boolean} [keep]
 * @returns {Option[]}
 */
export function keyOptions(app, site, weights, keep = () => true) {
  const { columns } = ticksOfSite(app, site);
  return columns.map((tick, i) => ({ label: tick.label, value: weights[i], side: site.answers ?? "", at: i })).filter(({ at }) => keep(at));
}

/**
 * Return the vector of a value of the trace at a position; empty if the source does not have it.
 * @param {App} app
 * @param {string} path
 * @param {number} position
 * @returns {Promise<Float32Array>}
 */
export async function vectorAt({ source }, path, position) {
  const found = await (await source.flow([]))?.vector(path, position);
  return found?.vector ?? new Float32Array(0);
}

/**
 * Return the vectors of a value at the first positions of a side.
 * @param {App} app
 * @param {string} path
 * @param {number} count
 */
export function vectorsOf(app, path, count) {
  return Promise.all(Array.from({ length: count }, (_, i) => vectorAt(app, path, i)));
}

/**
 * Return the most probable next tokens of a language model.
 * @param {App} app
 * @param {number} temperature
 * @returns {Promise<import("../source.js").Candidate[]>}
 */
export async function nextTokens({ source }, temperature) {
  const model = /** @type {import("../http_model.js").HttpModel | null} */ (source.model);
  return (await model?.fetchNext(temperature)) ?? []; // `next` would drop all but the latest of several requests
}

/** @param {ArrayLike<number>} x */
export function norm(x) {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * x[i];
  return Math.sqrt(sum);
}

/**
 * @param {ArrayLike<number>} a
 * @param {ArrayLike<number>} b
 */
export function cosine(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum / (norm(a) * norm(b) || 1);
}

/** @param {ArrayLike<number>} x */
export function meanAndDeviation(x) {
  const mean = Array.from(x).reduce((sum, one) => sum + one, 0) / x.length;
  const variance = Array.from(x).reduce((sum, one) => sum + (one - mean) ** 2, 0) / x.length;
  return { mean, deviation: Math.sqrt(variance) };
}

/**
 * Return the rows of the flow of one side, with its stations.
 * @param {App} app
 * @param {string} name "encoder" or "decoder"
 */
export async function flowSide({ source }, name) {
  const flow = await source.flow([]);
  const side = flow?.sides.find((one) => one.name === name);
  if (!flow || !side) return null;
  return { flow, side, rows: await flow.rows(side, 0, Math.min(side.n_tokens, flow.limit)) };
}

/**
 * Return the words of a side with the tokens of each.
 * @param {App} app
 * @param {string} side
 */
export function wordsOf({ about }, side) {
  const tokens = about.tokens[side] ?? [];
  const words = about.words[side] ?? [];
  /** @type {{ pieces: number[], special: boolean, text: string }[]} */
  const made = [];
  tokens.forEach((token, i) => {
    const special = words[i] === null;
    const joins = !special && i > 0 && words[i] === words[i - 1];
    const last = made.at(-1);
    if (joins && last) {
      last.pieces.push(i);
      last.text += token.trim();
    } else made.push({ pieces: [i], special, text: token.trim() });
  });
  return made;
}

/**
 * Return one row of the open head before and after the edits.
 * @param {App} app
 * @param {number} query
 */
export function openRows({ open }, query) {
  const at = (/** @type {import("../head.js").Tables} */ tables) => row(tables.weights, Math.min(query, tables.weights.rows - 1));
  return { before: at(open.before), after: at(open.after) };
}

/**
 * @param {State} state
 * @param {State | null} first
 * @param {(keyof State)[]} parts
 */
export function hasMoved(state, first, parts) {
  return first !== null && parts.some((part) => state[part] !== first[part]);
}

/** @param {App} app */
export function hasScores({ open }) {
  return !open.large && open.before.scores !== null;
}
