// Labels of tokens, and tokens grouped into words.

import { matrix } from "./matrix.js";

/**
 * @typedef {import("./matrix.js").Matrix} Matrix
 * @typedef {import("./source.js").About} About
 * @typedef {import("./source.js").Site} Site
 */

/**
 * A label of an axis and its range of positions.
 * @typedef {{ label: string, first: number, last: number, special: boolean }} Tick
 */

/** The mark in front of a piece that continues a word. */
export const CONTINUES = "·";

/**
 * Mark the names of pieces that continue a word, if the vocabulary marks the start of words with a space.
 * @param {{ name: string }[]} named whose names are changed
 */
export function markContinued(named) {
  if (!named.some(({ name }) => /^[▁ ]\p{L}/u.test(name))) return;
  for (const one of named) if (/^\p{L}/u.test(one.name)) one.name = `##${one.name}`;
}

/**
 * Return the label of a token: without spaces, with a middle dot if it continues a word.
 * @param {string} token
 * @param {boolean} [continues]
 */
export function labelOf(token, continues = false) {
  const text = token.replace(/▁/g, " ").replace(/\n/g, "⏎").replace(/\t/g, "⇥"); // some tokenizers mark spaces this way
  const bare = text.trim();
  if (!bare) return text ? "␣" : "∅";
  if (/^##./u.test(bare)) return `${CONTINUES}${bare.slice(2)}`;
  return continues && /^(##)?\p{L}/u.test(bare) ? `${CONTINUES}${bare.replace(/^##/, "")}` : bare; // digits and punctuation need no mark
}

/** @type {WeakMap<About, Map<string, Tick[]>>} */
const TICKS = new WeakMap();

/**
 * Return the labels of one side, cached.
 * @param {About} about
 * @param {string | null} side
 * @param {number} count
 * @returns {Tick[]}
 */
export function ticksOf(about, side, count) {
  const known = TICKS.get(about) ?? new Map();
  TICKS.set(about, known);
  const name = `${side} ${count}`;
  if (!known.has(name)) known.set(name, makeTicks(about, side, count));
  return known.get(name);
}

/**
 * @param {About} about
 * @param {string | null} side
 * @param {number} count
 * @returns {Tick[]}
 */
function makeTicks(about, side, count) {
  const tokens = side ? about.tokens[side] : null;
  const words = (side && about.words[side]) || [];
  const characters = tokens?.every((token, i) => words[i] === null || [...token].length < 2); // nothing to mark
  return Array.from({ length: count }, (_, i) => {
    const continues = !characters && words[i] !== null && words[i] !== undefined && words[i] === words[i - 1];
    const token = tokens ? labelOf(tokens[i], continues) : String(i);
    const label = about.image && /^\d+,\d+$/.test(token) ? `(${token})` : token; // a patch
    return { label, first: i, last: i, special: words.length > 0 && words[i] === null };
  });
}

/**
 * Return the description of a trace with replaced tokens shown as "old→new".
 * @param {About} about
 * @param {import("./edits.js").Edit[]} edits
 * @returns {About}
 */
export function withReplacedTokens(about, edits) {
  const put = edits.filter((edit) => edit.kind === "token");
  if (!put.length) return about;
  const tokens = { ...about.tokens };
  const replace = (/** @type {string} */ side, /** @type {number} */ position, /** @type {string} */ token) => {
    if (tokens[side]?.[position] === undefined) return;
    tokens[side] = tokens[side].map((old, i) => (i === position ? `${old.trim()}→${token}` : old));
  };
  for (const { side, position, token } of put) {
    replace(side, position, token);
    if (side === "target") replace("output", position - 1, token);
  }
  return { ...about, tokens };
}

/**
 * Return the side that labels the queries: in cross-attention, the token being written.
 * @param {Pick<Site, "group" | "asks" | "writes">} site
 */
export function querySide(site) {
  return site.group.endsWith("cross") ? (site.writes ?? site.asks) : site.asks;
}

/**
 * Group ticks into words; special tokens stay separate.
 * @param {About} about
 * @param {string | null} side
 * @param {Tick[]} ticks
 * @returns {Tick[]}
 */
export function groupWords(about, side, ticks) {
  const words = (side && about.words[side]) || [];
  const tokens = (side && about.tokens[side]) || [];
  /** @type {Tick[]} */
  const made = [];
  for (const tick of ticks) {
    const i = tick.first;
    const last = made[made.length - 1];
    const joins = last && words[i] !== null && words[i] !== undefined && words[i] === words[i - 1];
    if (joins) {
      last.last = i;
      last.label += labelOf(tokens[i]).replace(/^##/, "");
    } else made.push({ ...tick });
  }
  return made;
}

/**
 * Return a table of words: keys of a word are summed (or averaged), queries averaged.
 * @param {Matrix} table
 * @param {Tick[]} rows
 * @param {Tick[]} columns
 * @param {boolean} adds whether keys are summed
 * @returns {Matrix}
 */
export function wordTable(table, rows, columns, adds) {
  const made = matrix(rows.length, columns.length);
  rows.forEach((up, i) => {
    columns.forEach((across, j) => {
      let sum = 0;
      for (let a = up.first; a <= up.last; a++) {
        for (let b = across.first; b <= across.last; b++) sum += table.data[a * table.columns + b];
      }
      const queries = up.last - up.first + 1;
      made.data[i * columns.length + j] = sum / (adds ? queries : queries * (across.last - across.first + 1));
    });
  });
  return made;
}

/**
 * Return the index of the tick of a position.
 * @param {Tick[]} ticks
 * @param {number} position
 */
export function tickAt(ticks, position) {
  const found = ticks.findIndex((tick) => position >= tick.first && position <= tick.last);
  return Math.max(0, found);
}
