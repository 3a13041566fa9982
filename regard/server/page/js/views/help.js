// The list of keys.

import { el } from "../dom.js";

/** What each key does, in the order in which help lists them. */
const KEYS = /** @type {const} */ ([
  ["↑ ↓", "keyQuery"],
  ["← →", "keyKey"],
  ["[ ]", "keyHead"],
  ["{ }", "keyLayer"],
  ["Enter", "keyPin"],
  ["Esc", "keyUnpin"],
  ["1 2 3 4", "keyView"],
  ["s", "keyStage"],
  ["t", "keyTurn"],
  ["w", "keyWords"],
  ["m", "keyMask"],
  ["u", "keyUndo"],
  ["l", "keyLesson"],
  ["< >", "keyLessonNext"],
  ["?", "keyHelp"],
]);

/** What more there is on the page of a training run. */
const REPLAY_KEYS = /** @type {const} */ ([[", .", "keyCheckpoint"], ["p", "keyPlay"]]);

/** @param {import("../app.js").App} app */
export function showHelp(app) {
  const { say } = app;
  const all = app.root.dataset.replays ? [...KEYS, ...REPLAY_KEYS] : KEYS;
  const rows = all.map(([key, word]) => [el("dt", {}, key.split(" ").map((one) => el("kbd", {}, one))), el("dd", {}, say(word))]);
  const dialog = el(
    "dialog.help",
    { onclose: () => dialog.remove(), onclick: (/** @type {Event} */ event) => event.target === dialog && dialog.close() },
    el("div.inner", {}, el("h2", {}, say("keys")), el("dl", {}, rows.flat()), el("p.note", {}, say("countedFromZero"))),
    el("form", { method: "dialog" }, el("button", {}, say("close"))),
  );
  app.root.append(dialog);
  dialog.showModal();
}
