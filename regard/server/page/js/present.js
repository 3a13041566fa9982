// Presenting: one pane on the full screen in large type, with keys for a presenter.

import { showNotice } from "./save.js";
import { otherHead, otherLayer } from "./selection.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./state.js").State} State
 */

/** The pane that was enlarged before; restored at the end. */
/** @type {WeakMap<App, { pane: State["pane"] }>} */
const BEFORE = new WeakMap();

/** @param {App} app */
export function isPresenting({ root }) {
  return root.classList.contains("present");
}

/**
 * Start or end presenting.
 * @param {App} app
 */
export function togglePresenting(app) {
  if (isPresenting(app)) leave(app);
  else enter(app);
}

/** @param {App} app */
function enter(app) {
  const { root, store, t } = app;
  BEFORE.set(app, { pane: store.state.pane });
  root.classList.add("present");
  store.set({ pane: store.state.pane || "pattern", editing: false, drawing: false });
  const onchange = () => {
    if (document.fullscreenElement) return;
    document.removeEventListener("fullscreenchange", onchange);
    if (isPresenting(app)) leave(app);
  };
  root.requestFullscreen?.().then(() => document.addEventListener("fullscreenchange", onchange), () => null); // else the window is the screen
  showNotice(app, t("presentKeys"));
  app.redraw();
}

/** @param {App} app */
function leave(app) {
  app.root.classList.remove("present");
  app.store.set({ pane: BEFORE.get(app)?.pane ?? "" });
  if (document.fullscreenElement) document.exitFullscreen().catch(() => null);
  app.redraw();
}

/**
 * Return the change of state for a key of the presenter; undefined for other keys.
 * @param {App} app
 * @param {string} key
 * @returns {Partial<State> | null | undefined}
 */
export function pressPresenting(app, key) {
  const { state } = app.store;
  const by = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }[key];
  if (key === "Escape") {
    leave(app);
    return null;
  }
  if (state.page === "flow" && by) {
    /** @type {HTMLElement | null} */ (app.root.querySelector(by > 0 ? ".flow-controls .next" : ".flow-controls .back"))?.click();
    return null;
  }
  if (state.page !== "explore") return undefined;
  if (by) return otherHead(app, by);
  if (key === "ArrowDown" || key === "ArrowUp") return otherLayer(app, key === "ArrowDown" ? 1 : -1);
  return undefined;
}
