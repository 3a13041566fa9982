// Shared by the views that draw tables of numbers: space, rollout, approximation.

import { el, fill } from "../dom.js";
import { short } from "../format.js";
import { rangeOf } from "../matrix.js";
import { rowAt } from "../selection.js";
import { draw as drawGrid } from "./grid.js";
import { draw as drawHeat } from "./heatmap.js";
import { draw as drawImage } from "./image.js";
import { isHeatmap, plotOf } from "./plot.js";

/**
 * A view with its own description, numbers and data.
 * @typedef {object} CustomView
 * @property {import("./pattern.js").Select} select
 * @property {(query: number, key: number) => (Node | string)[]} says
 * @property {(query: number, key: number) => (Node | string)[]} reads
 * @property {(query: number) => HTMLElement} table for screen readers
 * @property {() => string} data what "copy data" copies
 */

/**
 * @typedef {import("../app.js").App} App
 * @typedef {{ onhover: (query: number, key: number) => void, onpick: (query: number, key: number) => void }} Handlers
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("./plot.js").Plot} Plot
 */

/** The smallest cell of a circle and the width of labels, in pixels. */
const MIN_CELL = 16;
const LABEL_SPACE = 110;
/** The delay, in milliseconds, before "loading" is shown. */
const NOTE_DELAY = 250;

/**
 * Draw a view when its data is loaded.
 * @template T
 * @param {App} app
 * @param {HTMLElement} board
 * @param {Promise<T | null>} loading null if the file does not contain the data
 * @param {(element: HTMLElement, data: T) => CustomView} make
 * @returns {{ view: () => CustomView | null, select: import("./pattern.js").Select }}
 */
export function drawWhenLoaded(app, board, loading, make) {
  const element = el("div.custom-view");
  board.style.setProperty("--across", "1");
  fill(board, element);
  /** @type {CustomView | null} */
  let view = null;
  const showNote = (/** @type {string} */ text) => element.isConnected && fill(element, el("p.note", {}, text));
  const waiting = setTimeout(() => showNote(app.t("loading")), NOTE_DELAY);
  app.whileBusy(loading)
    .then((data) => {
      clearTimeout(waiting);
      if (!element.isConnected) return; // the selection has changed
      if (data === null) return void showNote(app.t("notInFile"));
      fill(element);
      view = make(element, data);
      element.dataset.ready = "1";
      app.setPeek(app.peek); // updates the sentence and the numbers
    })
    .catch((error) => {
      clearTimeout(waiting);
      showNote(app.t.error(error));
    });
  return { view: () => view, select: (query, key, peek) => view?.select(query, key, peek) };
}

/**
 * Return mouse handlers for views whose rows and columns are positions, never words.
 * @param {App} app
 * @returns {Handlers}
 */
export function positionHandlers(app) {
  const { store } = app;
  return {
    onhover: (query, key) => {
      if (query < 0 && key < 0) return app.setPeek(null);
      const at = { query: query < 0 ? store.state.query : query, key: key < 0 ? store.state.key : key };
      if (app.peek?.query !== at.query || app.peek.key !== at.key) app.setPeek(at);
      return undefined;
    },
    onpick: (query, key) => store.set({ ...(query < 0 ? {} : { query }), ...(key < 0 ? {} : { key }), pinned: true }),
  };
}

/**
 * Return a plot of a table between the tokens of the open site.
 * @param {App} app
 * @param {Matrix} table
 * @param {{ width: number, height: number, alone?: boolean }} room
 * @param {Handlers} act
 * @returns {Plot}
 */
export function plotOfTable({ open, store, t }, table, room, act) {
  const { query, key, turned } = store.state;
  return {
    ...{ table, stage: "weights", rows: open.rows, columns: open.columns, query, key, turned, t },
    ...{ allowed: null, kept: null, edited: null, off: false, range: rangeOf(table), alone: true },
    ...{ asks: t("queriesAxis"), answers: t("keysAxis") },
    ...room,
    ...act,
  };
}

/**
 * Draw a table over the image if there is one and an app is given, otherwise as circles or heat map.
 * @param {HTMLElement} element
 * @param {Plot} plot
 * @param {App | null} app
 * @returns {import("./pattern.js").Select}
 */
export function drawTable(element, plot, app) {
  if (app?.about.image) return drawImage(element, plot, app.about.image);
  const fits = plot.columns.length * MIN_CELL + LABEL_SPACE <= plot.width;
  return isHeatmap(plot) || !fits ? drawHeat(element, plot, { window: null }) : drawGrid(element, plot);
}

/**
 * Join lines with tabs, for programs.
 * @param {(string | number)[][]} lines
 */
export function tabSeparated(lines) {
  return lines.map((line) => line.join("\t")).join("\n");
}

/** Larger tables show only the largest weights of the selected query. */
const MAX_WHOLE_TABLE = 16;
const MAX_TABLE_ROWS = 60;

/**
 * @param {App} app
 * @returns {HTMLElement}
 */
export function accessibleTable(app) {
  const { open, t, store } = app;
  const { rows, columns, table } = plotOf(app, open.after, "weights");
  const caption = el("caption", {}, `${t("weights")}: ${t("queriesAxis")}, ${t("keysAxis")}`);
  if (!open.large && rows.length <= MAX_WHOLE_TABLE && columns.length <= MAX_WHOLE_TABLE) {
    const head = el("tr", {}, el("td"), columns.map((tick) => el("th", { scope: "col" }, tick.label)));
    const body = rows.map((tick, i) =>
      el("tr", {}, el("th", { scope: "row" }, tick.label), columns.map((_, j) => el("td", {}, short(table.data[i * columns.length + j])))));
    return el("table", {}, caption, head, body);
  }
  const { query } = store.state;
  const line = rowAt(app, query).weights.data;
  const order = Array.from(line.keys()).sort((a, b) => line[b] - line[a]).slice(0, MAX_TABLE_ROWS);
  const body = order.map((j) => el("tr", {}, el("th", { scope: "row" }, open.columns[j].label), el("td", {}, short(line[j]))));
  return el("table", {}, el("caption", {}, t("tableOfQuery", { query: open.rows[query].label })), body);
}
