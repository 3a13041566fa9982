// The explorer app: one source, one selection, and the panes that show it.

import { Controller, openHead } from "./controller.js";
import { useSchema } from "./edits.js";
import { prefetchFlow } from "./flow_rows.js";
import { showDigits } from "./format.js";
import { divideEdits, nameHead } from "./kept_choices.js";
import { listenToKeys } from "./keyboard.js";
import { savedLessons } from "./lessons.js";
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
 * @property {() => void} redraw draw again what may have been hidden
 * @property {<T>(work: Promise<T>) => Promise<T>} whileBusy mark the page as busy until the work is done
 * @property {((app: App) => Pane)[]} extras panes that the host adds above and below the others
 * @property {(source: Source, keep?: Keep) => Promise<void>} show replace the trace
 * @property {() => { kind: "model" | "examples", name: string, request: import("./http.js").TraceRequest }[]} [requests]
 *   models and examples that can be opened; only with a server
 * @property {Map<string, unknown>} refused edits that the model refuses, as JSON, and its errors
 * @property {(error: unknown, edits: State["edits"]) => void} refuse let an edit rest that the model refuses
 */

/**
 * What to show of another trace: the selection as it is, that of an address, the connection that an
 * example is chosen for, or by default what the reader has chosen.
 * @typedef {{ selection?: boolean, address?: string, example?: boolean }} Keep
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
  const app = /** @type {App} */ ({ root, source, about, sites, store, extras, peek: null, refused: new Map() });
  app.store.state = withinBounds(app, divideEdits(app, store.state));
  if (!store.state.kept && nameHead(store.state) !== nameHead(about.start)) store.state.kept = nameHead(store.state); // a link to a head
  store.fit = (state) => divideEdits(app, state);
  app.t = messagesFor(store.state.language);
  await prefetchFlow(source, about, app.store.state);
  app.open = await openHead(app);
  const panes = layout(app);
  const controller = new Controller(app, panes);
  app.setPeek = (peek) => {
    app.peek = peek;
    controller.schedule(["peek"]);
  };
  app.redraw = () => controller.schedule(["size"]);
  app.whileBusy = (work) => controller.whileBusy(work);
  app.show = (other, keep = {}) => controller.whileBusy(controller.replaceTrace(other, firstState, keep));
  app.refuse = (error, edits) => controller.refuse(error, edits);
  store.subscribe(({ edits }, changed) => {
    if (changed.has("edits") && edits.length) app.source.model?.effect(edits).catch((error) => app.refuse(error, edits)); // the model computes while the panes are drawn
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
    page: about.live && about.title ? "flow" : "explore",
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
    kept: "",
    edits: [],
    resting: [],
    name: "",
    sampling: 1,
    work: "",
    spot: "",
    editing: false,
    lens: false,
    split: false,
    compare: "",
    drawing: false,
    lesson: 0,
    step: 0,
    learned: savedLessons(),
  };
}
