// Views that show more than one head's table: what they have in common.

import { el, fill } from "../dom.js";
import { short } from "../format.js";
import { rangeOf } from "../matrix.js";
import { lineAt } from "../selection.js";
import { draw as drawGrid } from "./grid.js";
import { draw as drawHeat } from "./heatmap.js";
import { draw as drawImage } from "./image.js";
import { isHot, plotOf } from "./plot.js";

/**
 * A view that draws, says and reads its own things.
 * @typedef {object} Own
 * @property {import("./pattern.js").Select} select
 * @property {(query: number, key: number) => (Node | string)[]} says
 * @property {(query: number, key: number) => (Node | string)[]} reads
 * @property {(query: number) => HTMLElement} table for those who listen
 * @property {() => string} data what "copy data" copies
 */

/**
 * @typedef {import("../app.js").App} App
 * @typedef {{ onhover: (query: number, key: number) => void, onpick: (query: number, key: number) => void }} Act
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("./plot.js").Plot} Plot
 */

/** The smallest cell with a circle in it, and what stands beside the cells, in pixels. */
const SMALLEST = 16;
const LABELS = 110;
/** Shorter waits are not spoken of. */
const PATIENCE = 250;

/**
 * Draw a view as soon as its numbers are there.
 * @template T
 * @param {App} app
 * @param {HTMLElement} board
 * @param {Promise<T | null>} coming null where the numbers are not to be had
 * @param {(element: HTMLElement, data: T) => Own} make
 * @returns {{ own: () => Own | null, select: import("./pattern.js").Select }}
 */
export function drawOwn(app, board, coming, make) {
  const element = el("div.own");
  board.style.setProperty("--across", "1");
  fill(board, element);
  /** @type {Own | null} */
  let own = null;
  const tell = (/** @type {string} */ text) => element.isConnected && fill(element, el("p.note", {}, text));
  const waiting = setTimeout(() => tell(app.say("loading")), PATIENCE);
  app
    .during(coming)
    .then((data) => {
      clearTimeout(waiting);
      if (!element.isConnected) return; // the reader has moved on
      if (data === null) return void tell(app.say("notInFile"));
      fill(element);
      own = make(element, data);
      element.dataset.ready = "1";
      app.look(app.peek); // sentence and numbers follow
    })
    .catch((error) => {
      clearTimeout(waiting);
      tell(/** @type {Error} */ (error).message);
    });
  return { own: () => own, select: (query, key, peek) => own?.select(query, key, peek) };
}

/**
 * What a mouse does in these views: rows and columns are positions, never words.
 * @param {App} app
 * @returns {Act}
 */
export function positionsOf(app) {
  const { store } = app;
  return {
    onhover: (query, key) => {
      if (query < 0 && key < 0) return app.look(null);
      const at = { query: query < 0 ? store.state.query : query, key: key < 0 ? store.state.key : key };
      if (app.peek?.query !== at.query || app.peek.key !== at.key) app.look(at);
      return undefined;
    },
    onpick: (query, key) => store.set({ ...(query < 0 ? {} : { query }), ...(key < 0 ? {} : { key }), pinned: true }),
  };
}

/**
 * A table of numbers between the tokens of the open site, ready to be drawn.
 * @param {App} app
 * @param {Matrix} table
 * @param {{ width: number, height: number, alone?: boolean }} room
 * @param {Act} act
 * @returns {Plot}
 */
export function plotOfTable({ open, store, say }, table, room, act) {
  const { query, key, turned } = store.state;
  return {
    ...{ table, stage: "weights", rows: open.rows, columns: open.columns, query, key, turned, say },
    ...{ allowed: null, kept: null, edited: null, off: false, range: rangeOf(table), alone: true },
    ...{ asks: say("asks"), answers: say("answers") },
    ...room,
    ...act,
  };
}

/**
 * Over the image where there is one (and an app is given), else as circles or heat cells.
 * @param {HTMLElement} element
 * @param {Plot} plot
 * @param {App | null} app
 * @returns {import("./pattern.js").Select}
 */
export function drawTable(element, plot, app) {
  if (app?.about.image) return drawImage(element, plot, app);
  const fits = plot.columns.length * SMALLEST + LABELS <= plot.width;
  return isHot(plot) || !fits ? drawHeat(element, plot, { window: null }) : drawGrid(element, plot);
}

/**
 * The names of keys, as a list in a sentence.
 * @param {App} app
 * @param {number[]} keys
 */
export function listedTerms(app, keys) {
  const terms = keys.map((j) => el("b.term.key", {}, app.open.columns[j].label));
  return terms.flatMap((one, i) => (i === 0 ? [one] : [i === terms.length - 1 ? app.say("and") : ", ", one]));
}

/**
 * Lines of a table that programs read.
 * @param {(string | number)[][]} lines
 */
export function tabbed(lines) {
  return lines.map((line) => line.join("\t")).join("\n");
}

/** Tables up to this size are given whole; of larger ones the selected query's largest weights. */
const MAX_WHOLE_TABLE = 16;
const MAX_TABLE_ROWS = 60;

/**
 * @param {App} app
 * @returns {HTMLElement}
 */
export function readTable(app) {
  const { open, say, store } = app;
  const { rows, columns, table } = plotOf(app, open.after, "weights");
  const caption = el("caption", {}, `${say("weights")}: ${say("asks")}, ${say("answers")}`);
  if (!open.large && rows.length <= MAX_WHOLE_TABLE && columns.length <= MAX_WHOLE_TABLE) {
    const head = el("tr", {}, el("td"), columns.map((tick) => el("th", { scope: "col" }, tick.label)));
    const body = rows.map((tick, i) =>
      el("tr", {}, el("th", { scope: "row" }, tick.label), columns.map((_, j) => el("td", {}, short(table.data[i * columns.length + j])))));
    return el("table", {}, caption, head, body);
  }
  const { query } = store.state;
  const line = lineAt(app, query).weights.data;
  const order = Array.from(line.keys()).sort((a, b) => line[b] - line[a]).slice(0, MAX_TABLE_ROWS);
  const body = order.map((j) => el("tr", {}, el("th", { scope: "row" }, open.columns[j].label), el("td", {}, short(line[j]))));
  return el("table", {}, el("caption", {}, say("tableOfQuery", { query: open.rows[query].label })), body);
}
