// The pin next to the head's name: whether the page chooses the head for each text, or the reader keeps it.

import { el } from "../dom.js";
import { hasHead, keptHead, nameHead } from "../kept_choices.js";

/** @typedef {import("../app.js").App} App */

/**
 * @param {App} app
 * @returns {HTMLElement}
 */
export function pin(app) {
  const { t, store, about } = app;
  const kept = keptHead(store.state.kept);
  const release = () => store.set({ kept: "", ...about.start, pinned: false });
  const keep = () => store.set({ kept: nameHead(store.state) });
  if (!kept) return button("auto", t("pinAuto"), t("pinAutoHelp"), keep);
  if (hasHead(app, kept)) return button("kept", t("pinKept"), t("pinKeptHelp"), release);
  const layer = /\.(\d+)\./.exec(kept.site)?.[1] ?? "";
  return button("lost", t("pinLost", { layer, head: kept.head }), t("pinLostHelp", kept), release);
}

/**
 * @param {"auto" | "kept" | "lost"} state
 * @param {string} text
 * @param {string} help
 * @param {() => void} act
 */
function button(state, text, help, act) {
  return el("button.head-pin", { "data-pin": state, title: help, "aria-label": `${text}: ${help}`, "aria-pressed": String(state !== "auto"), onclick: act }, text);
}
