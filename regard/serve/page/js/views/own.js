// Views that show more than one head's table: what they have in common.

import { el, fill } from "../dom.js";

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
 * @typedef {{ current: Own | null, query: number, key: number }} Holder
 */

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
  coming
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
 * Lines of a table that programs read.
 * @param {(string | number)[][]} lines
 */
export function tabbed(lines) {
  return lines.map((line) => line.join("\t")).join("\n");
}
