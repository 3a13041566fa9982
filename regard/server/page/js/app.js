// The explorer app: one source, one selection, and the panes that show it.

import { Controller, openHead } from "./controller.js";
import { useSchema } from "./edits.js";
import { showDigits } from "./format.js";
import { listenToKeys } from "./keyboard.js";
import { messagesFor } from "./messages.js";
import { withinBounds } from "./selection.js";
import { Store } from "./state.js";
import { layout } from "./views/layout.js";

/**
 * @typedef {import("./source.js").Source} Source
 * @typedef {import("./source.js").About} About
 * @typedef {import("./source.js").Site} Site
 * @typedef {import("./source.js").Vectors} Vectors
 * @typedef {import("./head.js").Tables} Tables
 * @typedef {import("./tokens.js").Tick} Tick
 * @typedef {import("./state.js").State} State
 */

/**
 * The head that is open.
 * @typedef {object} Open
 * @property {Site} site
 * @property {number} head
 * @property {Vectors} vectors
 * @property {Tables} before as the model computed it
 * @property {Tables} after after the reader's edits; the same object if there are none
 * @property {import("./edits.js").Changes | null} changes
 * @property {import("./source.js").EditedHead | null} recomputed what the model computes here after all edits;
 *   null until it has answered, and without edits or a model
 * @property {Tick[]} rows queries
 * @property {Tick[]} columns keys
 * @property {string | null} asking side of the text that labels the queries
 * @property {boolean} large whether it has too many cells to keep in memory; `before` then has one row
 */

/**
 * @typedef {object} App
 * @property {HTMLElement} root
 * @property {Source} source
 * @property {About} about
 * @property {Site[]} sites
 * @property {Store} store
 * @property {Open} open
 * @property {import("./messages.js").Translate} t
 * @property {{ query: number, key: number } | null} peek where the mouse is
 * @property {(peek: App["peek"]) => void} setPeek called when the mouse moves over a pattern
 * @property {<T>(work: Promise<T>) => Promise<T>} whileBusy mark the page as busy until the work is done
 * @property {((app: App) => Pane)[]} extras panes that the host adds above and below the others
 * @property {(source: Source, stays?: boolean) => Promise<void>} show replace the
 *   trace; `stays` keeps the selection if the new one has the same sites
 */

/** A pane of the page: built once, then updated when the selection changes. */
/** @typedef {{ element: HTMLElement, update: (changed: Set<string>) => void }} Pane */

/**
 * Show a source in an element.
 * @param {HTMLElement} root
 * @param {Source} source
 * @param {import("./state.js").Address} address
 * @param {App["extras"]} [extras]
 * @returns {Promise<App>}
 */
export async function start(root, source, address, extras = []) {
  const [about, sites] = await Promise.all([source.about(), source.sites()]);
  showDigits(about.digits ?? 3);
  useSchema(about.edit_schema);
  const store = new Store(firstState(about), address);
  const app = /** @type {App} */ ({ root, source, about, sites, store, extras, peek: null });
  app.store.state = withinBounds(app, store.state);
  app.t = messagesFor(store.state.language);
  app.open = await openHead(app);
  const panes = layout(app);
  const controller = new Controller(app, panes);
  app.setPeek = (peek) => {
    app.peek = peek;
    controller.schedule(["peek"]);
  };
  app.whileBusy = (work) => controller.whileBusy(work);
  app.show = (other, stays = false) => controller.whileBusy(controller.replaceTrace(other, firstState, stays));
  store.subscribe(({ edits }, changed) => {
    if (changed.has("edits") && edits.length) app.source.model?.effect(edits).catch(() => null); // the model computes while the panes are drawn
    controller.schedule(changed);
  });
  listenToKeys(app);
  await panes.update(new Set(["all"]));
  root.dataset.ready = "1";
  controller.whileBusy(controller.refine());
  return app;
}

/**
 * @param {About} about
 * @returns {State}
 */
function firstState(about) {
  return {
    ...about.start,
    page: "explore",
    pinned: false,
    view: about.image ? "image" : "grid",
    stage: "weights",
    turned: false,
    words: false,
    mass: 1,
    sort: "layer",
    pane: "",
    heads: "",
    spin: 0,
    language: navigator.language.startsWith("ko") ? "ko" : "en",
    edits: [],
    name: "",
    sampling: 1,
    work: "",
    drawing: false,
    lesson: 0,
    learned: [],
  };
}
