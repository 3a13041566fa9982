// The stage of decoding: the query looks at its keys, and its row joins the pattern below.

import { el, fill, shape, textWidth } from "../dom.js";
import { short } from "../format.js";
import { MOVE, move } from "../motion.js";
import { ticksOf } from "../tokens.js";
import { around } from "./lines.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("../source.js").Site} Site
 */

/**
 * One head of the text that is written.
 * @typedef {object} WrittenHead
 * @property {Site} site
 * @property {number} head
 * @property {Matrix} weights query × key
 * @property {import("../source.js").About} about
 * @property {number} first the query that writes the first token
 */

const FONT = 14;
const ZONE = 92;
const ROW = 24;
const MAX_KEYS = 60;
const MAX_ROWS = 10;
const [MIN_COLUMN, MAX_COLUMN] = [24, 84];

/** @param {App} app */
export function decodingStage(app) {
  const { t } = app;
  const note = el("p.note.small");
  const scroller = el("div.stage-scroller");
  const element = el("section.decoding-stage", { "aria-label": t("pattern") }, note, scroller);

  /**
   * Show the rows of the tokens so far.
   * @param {WrittenHead | null} head null if its attention is unknown
   * @param {number} at number of tokens written; the last one's query is open
   * @param {string[]} names of all tokens that are written
   * @param {boolean} [pending] whether the last one is not chosen yet
   */
  const show = (head, at, names, pending = false) => {
    if (!head) return fill(note, t("decodingNoPattern")), fill(scroller);
    const { site } = head;
    const keys = ticksOf(head.about, site.answers, site.n_key);
    const query = head.first + Math.max(0, at - 1);
    const row = rowOf(head, query);
    const written = site.answers === "target" ? Math.min(keys.length, query + 1) : keys.length; // what comes later is not there yet
    const span = around(keys.length, row.indexOf(Math.max(...row)), MAX_KEYS);
    const hidden = span[1] - span[0] < keys.length ? ` ${t("decodingKeys", { first: span[0], last: span[1] - 1, n: keys.length })}` : "";
    const named = site.layer === null && site.n_heads === 1 ? t("decodingOnlyHead") : t("decodingHead", { layer: site.layer ?? 0, head: head.head });
    fill(note, t("decodingSays", { head: named }), hidden);
    fill(scroller, drawing(head, at, pending ? names.with(at - 1, "?") : names, keys, [span[0], Math.min(span[1], written), span[1]], Math.max(scroller.clientWidth, 200), pending));
    const best = scroller.querySelector(".key.best");
    if (best && scroller.scrollWidth > scroller.clientWidth) {
      scroller.scrollLeft = Number(best.getAttribute("data-x")) - 0.6 * scroller.clientWidth;
    }
  };

  /** Let the query slide in and its lines draw. @param {number} speed */
  const look = async (speed) => {
    await move(scroller.querySelector(".asking"), { transform: "translateX(-48px)", opacity: 0 }, (0.8 * MOVE) / speed);
    await Promise.all([...scroller.querySelectorAll(".looks path")].map((line) => move(line, { strokeDashoffset: "1" }, MOVE / speed)));
  };

  /** Let the row of the query slide into the pattern. @param {number} speed */
  const join = (speed) => move(scroller.querySelector(".row.newest"), { transform: `translateY(${-ROW}px)`, opacity: 0 }, (0.8 * MOVE) / speed);
  return { element, show, look, join };
}

/**
 * @param {WrittenHead} head
 * @param {number} query
 */
function rowOf({ weights }, query) {
  return weights.data.subarray(query * weights.columns, (query + 1) * weights.columns);
}

/**
 * Draw the keys, the query with its lines, and the rows so far; names of rows stay in view.
 * @param {WrittenHead} head
 * @param {number} at
 * @param {string[]} names
 * @param {import("../tokens.js").Tick[]} keys
 * @param {[number, number, number]} span the keys that are drawn, and up to which one there is space
 * @param {number} space available width
 * @param {boolean} pending whether the newest row is not in the pattern yet
 */
function drawing(head, at, names, keys, [first, stop, end], space, pending) {
  const [shown, all] = [keys.slice(first, stop), keys.slice(first, end)];
  const gutter = Math.min(120, 14 + Math.max(20, ...names.map((name) => textWidth(name, FONT))));
  const column = Math.max(MIN_COLUMN, Math.min(MAX_COLUMN, (space - gutter - 40) / all.length));
  const widths = all.map((one) => textWidth(one.label, FONT)).sort((a, b) => a - b);
  const common = widths[Math.floor(0.8 * (widths.length - 1))];
  const tilted = common > column - 4; // single long labels are cut
  const top = tilted ? Math.min(96, 16 + widths[widths.length - 1] * 0.72) : 24;
  const from = Math.max(0, at - MAX_ROWS);
  const grid = top + ZONE + 16;
  const height = grid + Math.max(1, at - from) * ROW + 6;
  const x = (/** @type {number} */ j) => (j - first + 0.5) * column;
  const row = at ? rowOf(head, head.first + at - 1) : null;
  const best = row ? row.indexOf(Math.max(...row)) : -1;
  const parts = shown.map((one, i) => keyLabel(one.label, x(first + i), top, first + i, first + i === best, tilted ? 0 : column));
  const [left, right] = [x(first), x(stop - 1)];
  const place = head.site.answers === "target" ? right : left + ((at - 0.5) / Math.max(1, names.length)) * (right - left);
  const near = 0.2 * space; // the query stays in view with its best key
  const middle = Math.max(x(best) - near, Math.min(x(best) + near, place));
  if (row) parts.push(...asking(row, names[at - 1], [first, stop], x, top, middle));
  const labels = [];
  for (let step = from; step < at - Number(pending); step++) {
    const [line, y, newest] = [rowOf(head, head.first + step), grid + (step - from) * ROW, step === at - 1];
    parts.push(gridRow(line, [first, stop], x, y, column, newest));
    labels.push(shape(`text${newest ? ".newest" : ""}`, { x: gutter - 8, y: y + ROW / 2 + 5, "text-anchor": "end", "font-size": FONT }, names[step]));
  }
  const about = { role: "img", "aria-label": row ? `${names[at - 1]} → ${keys[best].label} ${short(row[best])}` : "" };
  return [shape("svg.names", { width: gutter, height, "aria-hidden": "true" }, labels), shape("svg", { width: column * all.length + (tilted ? 50 : 8), height, ...about }, parts)];
}

/**
 * @param {string} label
 * @param {number} x
 * @param {number} top
 * @param {number} j
 * @param {boolean} best
 * @param {number} space for labels that are not tilted; 0 tilts them
 */
function keyLabel(label, x, top, j, best, space) {
  const fits = !space || textWidth(label, FONT) <= space;
  const place = !space ? { transform: `translate(${x - 2},${top - 6}) rotate(-40)` } : { x, y: top - 8, "text-anchor": "middle" };
  return shape(`text.key${best ? ".best" : ""}`, { ...place, "data-x": x, "data-key": j, "font-size": FONT, ...(fits ? {} : { textLength: space - 4, lengthAdjust: "spacingAndGlyphs" }) }, label);
}

/**
 * The query and its lines to the keys.
 * @param {Float32Array} row
 * @param {string} name
 * @param {[number, number]} span
 * @param {(j: number) => number} x
 * @param {number} top
 * @param {number} around where the query stands: in self-attention, below the last key
 */
function asking(row, name, [first, stop], x, top, around) {
  const wide = textWidth(name, FONT) + 16;
  const middle = Math.max(wide / 2 + 2, around);
  const bottom = top + ZONE;
  const lines = [];
  for (let j = first; j < stop; j++) {
    if (row[j] < 0.004) continue;
    const d = `M${middle},${bottom - 13}C${middle},${bottom - ZONE / 2} ${x(j)},${top + ZONE / 2.4} ${x(j)},${top}`;
    lines.push(shape("path", { d, pathLength: 1, "stroke-width": (0.6 + 6 * row[j]).toFixed(2), opacity: (0.25 + 0.7 * row[j]).toFixed(2), "data-weight": row[j] }, shape("title", {}, short(row[j]))));
  }
  const chip = shape("g.asking", {},
    shape("rect", { x: middle - wide / 2, y: bottom - 14, width: wide, height: 24, rx: 6 }),
    shape("text", { x: middle, y: bottom + 3, "text-anchor": "middle", "font-size": FONT }, name));
  return [shape("g.looks", {}, lines), chip];
}

/**
 * A row of the pattern: circles whose area is the weight.
 * @param {Float32Array} row
 * @param {[number, number]} span
 * @param {(j: number) => number} x
 * @param {number} y
 * @param {number} column
 * @param {boolean} newest
 */
function gridRow(row, [first, stop], x, y, column, newest) {
  const largest = Math.min(column, ROW) / 2 - 1;
  const circles = [];
  for (let j = first; j < stop; j++) {
    const r = Math.max(0.5, largest * Math.sqrt(row[j]));
    circles.push(shape("circle", { cx: x(j), cy: y + ROW / 2, r: r.toFixed(2), "data-weight": row[j] }, shape("title", {}, short(row[j]))));
  }
  return shape(`g.row${newest ? ".newest" : ""}`, {},
    shape("line", { x1: 0, x2: x(stop - 1) + column / 2, y1: y + ROW, y2: y + ROW }), circles);
}
