// The page before its first trace: the outlines of its panes, and what is being waited for.

import { el, fill } from "../dom.js";
import { progressOf } from "./input_bar.js";

/** The time in seconds after which the wait is explained. */
const LONG = 2;

/**
 * Show the outlines of the page; return a function that shows progress.
 * @param {HTMLElement} root
 * @param {import("../messages.js").Translate} t
 * @returns {(progress: import("../http.js").Progress) => void}
 */
export function skeleton(root, t) {
  const started = performance.now();
  const status = el("p.status", { role: "status" });
  const note = el("p.note");
  const block = (/** @type {string} */ name) => el(`span.block.${name}`);
  const thumbnails = Array.from({ length: 18 }, () => block("thumbnail"));
  root.classList.add("regard");
  root.dataset.theme ??= matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  fill(root,
    el("header.top", {}, el("span.brand", {}, "regard"), block("field"), block("button")),
    el("div.skeleton", { "aria-hidden": "true" },
      el("div.column", {}, el("div.thumbnails", {}, thumbnails)),
      el("div.column.wide", {}, block("line"), block("picture")),
      el("div.column", {}, block("line"), block("strip"), block("strip"), block("line"), block("strip"))),
    el("div.waiting", {}, status, note));
  /** @type {import("../http.js").Progress} */
  let last = { doing: "waiting", done: 0, of: null };
  const show = (progress = last) => {
    last = progress;
    const seconds = Math.floor((performance.now() - started) / 1000);
    fill(status, progressOf(t, progress), seconds >= LONG ? el("span.digits", {}, t("seconds", { n: seconds })) : "");
    fill(note, seconds >= LONG && progress.doing === "loading" ? t("loadingLong") : "");
  };
  show();
  const clock = setInterval(() => (status.isConnected ? show() : clearInterval(clock)), 1000);
  return show;
}

/**
 * Say in one sentence why there is nothing to show, with a link that leads on, or a button that loads the page again.
 * @param {HTMLElement} root
 * @param {string} why
 * @param {import("../messages.js").Translate} t
 * @param {string} [home] where the link leads
 */
export function showNothing(root, why, t, home) {
  root.removeAttribute("aria-busy");
  fill(root, el("header.top", {}, el("h1.brand", {}, "regard")), el("main.nothing", {}, el("p", { role: "alert" }, why), home ? el("a.run", { href: home }, t("openModels")) : el("button.run", { onclick: () => location.reload() }, t("reload"))));
}
