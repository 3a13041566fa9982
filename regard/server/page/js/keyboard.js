// Keyboard shortcuts, and the dialog that lists them.

import { el, isPage } from "./dom.js";
import { isPresenting, pressPresenting, togglePresenting } from "./present.js";
import { openView, otherHead, otherLayer, viewsFrom } from "./selection.js";
import { SHOWN_STAGES } from "./state.js";
import { toggleCell } from "./views/edit_controls.js";
import { firstUnlearnedLesson, openLesson } from "./views/lesson_panel.js";
import { openPalette } from "./views/palette.js";

/** @typedef {import("./app.js").App} App */

/** @param {App} app */
export function listenToKeys(app) {
  const place = isPage(app.root) ? app.root.ownerDocument : app.root; // in a notebook: only while the widget has the focus
  if (place === app.root) app.root.addEventListener("pointerdown", () => keepFocus(app.root));
  place.addEventListener("keydown", (/** @type {any} */ event) => {
    if (!app.root.isConnected || document.querySelector("dialog[open]")) return;
    if ((event.ctrlKey || event.metaKey) && event.key === "k") return open(event, () => openPalette(app));
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (usesKey(/** @type {HTMLElement} */ (event.target), event.key)) return;
    if (event.key === "/") return open(event, () => openPalette(app));
    if (event.key === "p" && !app.root.dataset.replays) return open(event, () => togglePresenting(app));
    const presented = isPresenting(app) ? pressPresenting(app, event.key) : undefined;
    if (presented !== undefined) return open(event, () => presented && app.store.set(presented));
    if (app.store.state.page !== "explore" && !["?", "Escape", "l", "<", ">"].includes(event.key)) return;
    const parts = press(app, event.key);
    if (parts === undefined) return;
    event.preventDefault();
    if (parts) app.store.set(parts);
  });
}

/**
 * @param {Event} event
 * @param {() => void} act
 */
function open(event, act) {
  event.preventDefault();
  act();
}

/**
 * Focus the widget after a click on something that cannot have the focus.
 * @param {HTMLElement} root
 */
function keepFocus(root) {
  setTimeout(() => root.contains(document.activeElement) || root.focus({ preventScroll: true }));
}

/**
 * Return whether the focused element uses a key itself: fields use all keys, sliders the arrows.
 * @param {HTMLElement} target
 * @param {string} key
 */
function usesKey(target, key) {
  if (key === "Escape") return false;
  if (target.closest("input[type=range]")) return key.startsWith("Arrow");
  if (target.closest("input[type=checkbox]")) return key === "Enter";
  if (target.closest(".lesson") && /^(Arrow(Up|Down)|Page|Home|End| |Enter)/.test(key)) return true; // they scroll the story
  return target.closest("input, textarea, select, [contenteditable]") !== null;
}

/**
 * Return the change of state for a key; undefined if it has no function.
 * @param {App} app
 * @param {string} key
 * @returns {Partial<import("./state.js").State> | null | undefined}
 */
function press(app, key) {
  const { state } = app.store;
  const turn = state.turned;
  const queries = { ArrowUp: turn ? 0 : -1, ArrowDown: turn ? 0 : 1, ArrowLeft: turn ? -1 : 0, ArrowRight: turn ? 1 : 0 };
  const keys = { ArrowUp: turn ? -1 : 0, ArrowDown: turn ? 1 : 0, ArrowLeft: turn ? 0 : -1, ArrowRight: turn ? 0 : 1 };
  if (key in queries) {
    const name = /** @type {keyof typeof queries} */ (key);
    return { query: Math.max(0, state.query + queries[name]), key: Math.max(0, state.key + keys[name]), pinned: true };
  }
  if (key === "[" || key === "]") return otherHead(app, key === "]" ? 1 : -1);
  if (key === "{" || key === "}") return otherLayer(app, key === "}" ? 1 : -1);
  return pressOther(app, key);
}

/**
 * @param {App} app
 * @param {string} key
 * @returns {Partial<import("./state.js").State> | null | undefined}
 */
function pressOther(app, key) {
  const { state } = app.store;
  const view = viewsFrom(app, app.open.site)[Number(key) - 1];
  if (view) return openView(app, view);
  if (key in ZOOM) return pressButton(app, `[data-zoom="${ZOOM[key]}"]`);
  switch (key) {
    case "Enter":
      return document.activeElement?.closest("button, a, summary") ? undefined : { pinned: true };
    case "Escape":
      if (document.querySelector("dialog[open]")) return undefined;
      if (state.editing) return { editing: false, drawing: false };
      return state.pane ? { pane: "" } : { pinned: false };
    case "s":
      return { stage: SHOWN_STAGES[(SHOWN_STAGES.indexOf(state.stage) + 1) % SHOWN_STAGES.length] };
    case "t":
      return { turned: !state.turned };
    case "w":
      return { words: !state.words };
    case "m":
      toggleCell(app, state.query, state.key);
      return null;
    case "e":
      return { editing: !state.editing };
    case "u":
      app.store.undo();
      return null;
    case "l":
      openLesson(app, state.lesson ? 0 : firstUnlearnedLesson(app));
      return null;
    case "<":
    case ">":
      if (state.lesson) openLesson(app, Math.max(1, state.lesson + (key === ">" ? 1 : -1)));
      return null;
    case "?":
      showHelp(app);
      return null;
    default:
      return undefined;
  }
}

/** The buttons that keys press if they are shown. @type {Record<string, string>} */
const ZOOM = { "+": "zoomIn", "=": "zoomIn", "-": "zoomOut", "−": "zoomOut", 0: "zoomFit" };

/**
 * @param {App} app
 * @param {string} selector
 */
function pressButton(app, selector) {
  const button = /** @type {HTMLElement | null} */ (app.root.querySelector(selector));
  button?.click();
  return button ? null : undefined;
}

/** The keys in the order of the help dialog. */
const KEYS = /** @type {const} */ ([
  ["↑ ↓", "keyQuery"],
  ["← →", "keyKey"],
  ["[ ]", "keyHead"],
  ["{ }", "keyLayer"],
  ["Enter", "keyPin"],
  ["Esc", "keyUnpin"],
  ["1 2 3 4", "keyView"],
  ["+ − 0", "keyZoom"],
  ["s", "keyStage"],
  ["t", "keyTurn"],
  ["w", "keyWords"],
  ["m", "keyMask"],
  ["e", "keyEdit"],
  ["u", "keyUndo"],
  ["l", "keyLesson"],
  ["< >", "keyLessonNext"],
  ["/", "palette"],
  ["p", "present"],
  ["?", "keyHelp"],
]);

/** Additional keys of the training replay. */
const REPLAY_KEYS = /** @type {const} */ ([[", .", "keyCheckpoint"], ["p", "keyPlay"]]);

/** @param {App} app */
export function showHelp(app) {
  const { t } = app;
  const all = app.root.dataset.replays ? [...KEYS.filter(([key]) => key !== "p"), ...REPLAY_KEYS] : KEYS;
  const rows = all.map(([key, word]) => [el("dt", {}, key.split(" ").map((one) => el("kbd", {}, one))), el("dd", {}, t(word))]);
  const dialog = el(
    "dialog.help",
    { onclose: () => dialog.remove(), onclick: (/** @type {Event} */ event) => event.target === dialog && dialog.close() },
    el("div.inner", {}, el("h2", {}, t("keys")), el("dl", {}, rows.flat()), el("p.note", {}, t("countedFromZero"))),
    el("form", { method: "dialog" }, el("button", {}, t("close"))),
  );
  app.root.append(dialog);
  app.root.classList.remove("menu-open"); // the menu that it may have been opened from
  dialog.showModal();
  dialog.scrollTop = 0; // not down to the focused button
}
