// The layout of the page: header, panes, tabs on narrow screens, language and theme.

import { forgetColors } from "../color.js";
import { el, fill, rememberFocus, isPage, whenIdle } from "../dom.js";
import { showHelp } from "../keyboard.js";
import { PANES } from "../state.js";
import { editList } from "./edit_list.js";
import { firstUnlearnedLesson, lessons, openLesson } from "./lesson_panel.js";
import { overview } from "./overview.js";
import { pattern } from "./pattern.js";
import { steps } from "./steps.js";
import { textRows } from "./text_rows.js";
import { worked } from "./worked.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../app.js").Pane} Pane
 */

const THEME = "regard-theme";

/**
 * Build the page; return its update function.
 * @param {App} app
 */
export function layout(app) {
  /** @type {Pane[]} */
  let panes = [];
  /** @type {Pane[]} drawn before the others */
  let urgentPanes = [];
  app.root.classList.add("regard");
  app.root.dataset.theme = savedTheme() ?? systemTheme();
  const build = () => {
    const page = app.store.state.page;
    const picture = page === "worked" ? null : pattern(app);
    panes = picture ? [textRows(app), overview(app), picture, steps(app), editList(app)] : [worked(app)];
    const [head, ...rest] = panes.map((pane) => pane.element);
    const [above, below] = app.extras.map((make) => make(app));
    const lessonPanel = lessons(app);
    panes = [lessonPanel, above, ...panes, below].filter(Boolean); // panes above the pattern take their height first
    urgentPanes = picture ? [picture, below].filter(Boolean) : [];
    const middle = page === "worked" ? [head] : [head, tabs(app), el("main.panes", {}, rest.slice(0, 3)), rest[3]];
    app.root.lang = app.store.state.language;
    if (isPage(app.root)) document.documentElement.lang = app.store.state.language;
    fill(app.root, header(app, () => update(new Set(["theme"]))), lessonPanel.element, above?.element, middle, below?.element, footer(app));
  };
  const deferred = new DeferredUpdates();
  const update = async (/** @type {Set<string>} */ given) => {
    const rebuilt = ["all", "language", "page"].some((one) => given.has(one));
    const refocus = rebuilt ? rememberFocus(app.root) : null;
    if (rebuilt) build();
    app.root.dataset.pane = app.store.state.pane;
    app.root.dataset.page = app.store.state.page;
    const moves = app.root.classList.contains("changed") !== app.store.state.edits.length > 0; // bars appear or disappear
    app.root.classList.toggle("changed", app.store.state.edits.length > 0);
    if (given.has("theme")) forgetColors();
    for (const tab of app.root.querySelectorAll(".tabs button")) {
      tab.setAttribute("aria-selected", String(tab.getAttribute("data-tab") === (app.store.state.pane || "pattern")));
    }
    app.root.querySelector(".top .lessons-button")?.setAttribute("aria-pressed", String(app.store.state.lesson > 0));
    const changed = rebuilt || given.has("trace") ? new Set([...given, "all"]) : given.has("lesson") ? new Set([...given, "size"]) : given;
    const urgent = urgentPanes.length && !moves && [...changed].every((one) => QUICK.has(one)) && URGENT.some((one) => changed.has(one));
    if (urgent) {
      urgentPanes.forEach((pane) => pane.update(changed));
      await deferred.wait(changed, (missed) => panes.forEach((pane) => urgentPanes.includes(pane) || pane.update(missed)));
      return;
    }
    const missed = deferred.take(changed); // the urgent panes have not missed any
    for (const pane of panes) pane.update(urgentPanes.includes(pane) ? changed : missed);
    refocus?.();
  };
  watchSize(app, update);
  return { update };
}

/** Changes after which the urgent panes are drawn first, if only the selection changes with them. */
const URGENT = ["site", "head", "edits"];
const QUICK = new Set([...URGENT, "query", "key", "pinned", "peek"]);

/** Changes that the other panes show when the browser is idle. */
class DeferredUpdates {
  constructor() {
    this.missed = /** @type {Set<string>} */ (new Set());
    /** @type {Promise<void> | null} */
    this.waiting = null;
  }

  /**
   * Return all deferred changes together with these, and clear them.
   * @param {Iterable<string>} changed
   */
  take(changed) {
    const all = new Set([...this.missed, ...changed]);
    this.missed.clear();
    return all;
  }

  /**
   * @param {Iterable<string>} changed
   * @param {(missed: Set<string>) => void} show
   */
  wait(changed, show) {
    for (const one of changed) this.missed.add(one);
    this.waiting ??= whenIdle().then(() => {
      this.waiting = null;
      if (this.missed.size) show(this.take([]));
    });
    return this.waiting;
  }
}

/**
 * Redraw when the size or the system theme changes.
 * @param {App} app
 * @param {(changed: Set<string>) => Promise<void>} update
 */
function watchSize(app, update) {
  let width = app.root.clientWidth;
  let height = innerHeight;
  const onsize = () => {
    if (!app.root.isConnected || (app.root.clientWidth === width && innerHeight === height)) return;
    [width, height] = [app.root.clientWidth, innerHeight];
    update(new Set(["size"]));
  };
  new ResizeObserver(onsize).observe(app.root);
  addEventListener("resize", onsize);
  DARK().addEventListener("change", () => {
    app.root.dataset.theme = savedTheme() ?? systemTheme();
    update(new Set(["theme"]));
  });
}

/**
 * @param {App} app
 * @param {() => void} repaint
 */
function header(app, repaint) {
  const { t, store, about } = app;
  const link = (/** @type {"explore" | "worked"} */ page) =>
    el("button.link", { "aria-current": store.state.page === page ? "page" : undefined, onclick: () => store.set({ page }) }, t(page));
  const language = (/** @type {string} */ code, /** @type {string} */ text) =>
    el("button", { role: "radio", lang: code, "aria-checked": String(store.state.language === code), onclick: () => store.set({ language: code }) }, text);
  const theme = el("button.icon", { title: t("theme"), "aria-label": t("theme"), onclick: () => toggleTheme(app, repaint) }, "◐");
  return el("header.top", {},
    el("span.brand", {}, "regard"),
    about.title ? el("span.model", {}, about.title) : "",
    el("nav", { "aria-label": t("pages") }, pages(app, link)),
    el("button.quiet.lessons-button", { onclick: () => openLesson(app, store.state.lesson && store.state.page === "explore" ? 0 : firstUnlearnedLesson(app)) }, t("lessons")),
    el("span.gap"),
    el("div.choice.language", { role: "radiogroup", "aria-label": t("language") }, language("en", "en"), language("ko", "한")),
    theme,
    el("button.icon", { title: t("keys"), "aria-label": t("keys"), onclick: () => showHelp(app) }, "?"));
}

/**
 * Links to the other pages; the training replay has its own address.
 * @param {App} app
 * @param {(page: "explore" | "worked") => HTMLElement} link
 */
function pages({ root, t, store }, link) {
  const { runs, replays } = root.dataset;
  const away = (/** @type {string} */ href, /** @type {"explore" | "training"} */ word) => el("a.link", { href }, t(word));
  if (!replays) return [link("explore"), link("worked"), Number(runs) ? away("?run=", "training") : ""];
  const here = el("button.link", { "aria-current": store.state.page === "explore" ? "page" : undefined, onclick: () => store.set({ page: "explore" }) }, t("training"));
  return [away("?", "explore"), here, link("worked")];
}

/** @param {App} app */
function tabs(app) {
  return el("nav.tabs", { role: "tablist" }, PANES.map((name) =>
    el("button", { role: "tab", "data-tab": name, onclick: () => app.store.set({ pane: name }) }, app.t(name))));
}

/** @param {App} app */
function footer(app) {
  const { t, about } = app;
  const rounded = (about.digits ?? 3) < 3 ? ` ${t("roundedNumbers")}` : "";
  return el("footer.foot", {}, about.live ? "" : [`${t("offlineFile")}${rounded}`, el("span.edited", {}, t("answerNeedsModel"))]);
}

/**
 * @param {App} app
 * @param {() => void} repaint
 */
function toggleTheme(app, repaint) {
  app.root.dataset.theme = app.root.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(THEME, app.root.dataset.theme);
  } catch {
    // a page from disk may not have localStorage
  }
  repaint();
}

const DARK = () => matchMedia("(prefers-color-scheme: dark)");

function systemTheme() {
  return DARK().matches ? "dark" : "light";
}

function savedTheme() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null;
  }
}
