// The layout of the page: one header, the texts, panes (tabs on narrow screens), and below them one
// bar with the edits, whose drawer lies over the overview.

import { announcer } from "../announcer.js";
import { forgetColors } from "../color.js";
import { el, fillAround, rememberFocus, isPage, whenIdle } from "../dom.js";
import { showHelp } from "../keyboard.js";
import { check, radioGroup, rove } from "../radio_group.js";
import { PANES } from "../state.js";
import { compareButton } from "./compare_bar.js";
import { decoding } from "./decoding.js";
import { editDrawer } from "./edit_controls.js";
import { editList } from "./edit_list.js";
import { flow } from "./flow.js";
import { firstUnlearnedLesson, lessons, openLesson } from "./lesson_panel.js";
import { overview } from "./overview.js";
import { openPalette } from "./palette.js";
import { pattern } from "./pattern.js";
import { shareMenu } from "./share_menu.js";
import { steps } from "./steps.js";
import { textRows } from "./text_rows.js";
import { worked } from "./worked.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../app.js").Pane} Pane
 * @typedef {Pane & { aside?: HTMLElement, intro?: HTMLElement }} HeaderPane the pane above the others; the one
 *   of a model stands in the header, its `aside` next to the answer and its `intro` above the texts
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
  const spoken = announcer(app.root);
  app.root.classList.add("regard");
  app.root.dataset.theme = savedTheme() ?? systemTheme();
  const build = () => {
    const page = app.store.state.page;
    const picture = page === "explore" ? pattern(app) : null;
    panes = picture ? [textRows(app), overview(app), picture, steps(app), editList(app), editDrawer(app)] : page === "flow" ? [textRows(app), flow(app)] : page === "decoding" ? [textRows(app), decoding(app)] : [worked(app)];
    const [head, ...rest] = panes.map((pane) => pane.element);
    const [above, below] = /** @type {HeaderPane[]} */ (app.extras.map((make) => make(app)));
    const lessonPanel = lessons(app);
    panes = [lessonPanel, above, ...panes, below].filter(Boolean); // panes above the pattern take their height first
    urgentPanes = picture ? [picture, below].filter(Boolean) : [];
    const texts = () => el("section.top-texts", { "aria-label": `${app.t("input")} · ${app.t("answer")}` }, above?.intro, el("div.texts-line", {}, head, above?.aside));
    const middle = page === "worked" ? [head] : page === "flow" || page === "decoding" ? [texts(), rest[0], below?.element] : [
      el("div.above-panes", {}, texts(), tabs(app)),
      el("main.panes", {}, rest.slice(0, 3)),
      el("section.bottom", { "aria-label": app.t("editHead") }, rest[4], editToggle(app), compareButton(app), editHint(app), rest[3], below?.element),
    ];
    app.root.lang = app.store.state.language;
    if (isPage(app.root)) document.documentElement.lang = app.store.state.language;
    const bar = above?.intro ? above.element : null; // the bar of a training replay has its own lines
    const top = header(app, () => update(new Set(["theme"])), bar);
    fillAround(app.root, [top], lessonPanel.element, [bar ? null : above?.element, ...middle, lessonPanel.figure, footer(app), spoken]);
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
    app.root.querySelector(".edit-toggle")?.setAttribute("aria-expanded", String(app.store.state.editing));
    app.root.querySelector(".compare-button")?.setAttribute("aria-pressed", String(app.store.state.compare !== ""));
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
  closeMenus(app.root);
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
 * Close an open menu with Escape and with a click elsewhere.
 * @param {HTMLElement} root
 */
function closeMenus(root) {
  const open = () => /** @type {HTMLDetailsElement[]} */ ([...root.querySelectorAll("details.menu[open]")]);
  root.addEventListener("pointerdown", (event) => {
    for (const menu of open()) if (!menu.contains(/** @type {Node} */ (event.target))) menu.open = false;
    if (!(/** @type {Element} */ (event.target).closest(".top-menu, .pages-button"))) root.classList.remove("menu-open");
  });
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || (!open().length && !root.classList.contains("menu-open"))) return;
    event.stopPropagation();
    for (const menu of open()) {
      menu.open = false;
      menu.querySelector("summary")?.focus();
    }
    root.classList.remove("menu-open");
  });
}

/** @param {App} app */
function skipLink({ t, root }) {
  const go = (/** @type {Event} */ event) => {
    event.preventDefault();
    /** @type {HTMLElement | null} */ (root.querySelector(".pane.pattern, .pane.worked, .flow-board, .decoding-page"))?.focus();
  };
  return el("a.skip", { href: "#", onclick: go }, t("skip"));
}

/**
 * The button that opens the drawer.
 * @param {App} app
 */
function editToggle({ t, store }) {
  const toggle = () => store.set({ editing: !store.state.editing, ...(store.state.editing ? { drawing: false } : {}) });
  return el("button.edit-toggle", { title: t("keyEdit"), "aria-expanded": "false", onclick: toggle }, "✎ ", t("editHead"));
}

/** @param {App} app */
function editHint({ t }) {
  return el("p.note.edit-hint", {}, t("editHint"));
}

/**
 * @param {App} app
 * @param {() => void} repaint
 * @param {HTMLElement | null} bar the input of a model
 */
function header(app, repaint, bar) {
  const { t, store, about } = app;
  const link = (/** @type {"flow" | "explore" | "worked"} */ page) =>
    el("button.link", { "aria-current": store.state.page === page ? "page" : undefined, onclick: () => store.set({ page }) }, t(page));
  const language = (/** @type {string} */ code, /** @type {string} */ text) =>
    el("button", { role: "radio", lang: code, "data-code": code, onclick: () => store.set({ language: code }) }, text);
  const languages = [language("en", "en"), language("ko", "한")];
  check(languages, (button) => button.dataset.code === store.state.language);
  const theme = el("button.icon", { title: t("theme"), "aria-label": t("theme"), onclick: () => toggleTheme(app, repaint) }, "◐");
  return el("header.top", {},
    skipLink(app),
    el(isPage(app.root) && store.state.page !== "worked" ? "h1.brand" : "span.brand", {}, "regard"),
    about.title && !bar ? el("span.model", {}, about.title) : "",
    bar ?? el("span.gap"),
    el("button.primary.lessons-button", { onclick: () => openLesson(app, store.state.lesson && store.state.page !== "worked" ? 0 : firstUnlearnedLesson(app)) }, t(store.state.learned.length ? "lessons" : "startHere")),
    el("div.top-menu", {},
      el("nav.pages", { "aria-label": t("pages") }, pages(app, link)),
      radioGroup(el("div.choice.language", { role: "radiogroup", "aria-label": t("language") }, languages)),
      theme,
      el("button.icon.palette-button", { title: t("palette"), "aria-label": t("palette"), onclick: () => openPalette(app) }, "⌕"),
      shareMenu(app),
      el("button.icon.help-button", { title: t("keys"), "aria-label": t("keys"), onclick: () => showHelp(app) }, "?")),
    el("button.icon.pages-button", { title: t("pages"), "aria-label": t("pages"), onclick: () => app.root.classList.toggle("menu-open") }, "☰"));
}

/**
 * Links to the other pages; the training replay has its own address.
 * @param {App} app
 * @param {(page: "flow" | "explore" | "worked") => HTMLElement} link
 */
function pages({ root, t, store }, link) {
  const { runs, replays } = root.dataset;
  const away = (/** @type {string} */ href, /** @type {"flow" | "training"} */ word) => el("a.link", { href }, t(word));
  if (!replays) return [link("flow"), link("explore"), link("worked"), Number(runs) ? away("?run=", "training") : ""];
  const here = el("button.link", { "aria-current": store.state.page === "explore" ? "page" : undefined, onclick: () => store.set({ page: "explore" }) }, t("training"));
  return [away("?", "flow"), here, link("worked")];
}

/** @param {App} app */
function tabs(app) {
  const list = el("div.tab-list", { role: "tablist", "aria-label": app.t("view") }, PANES.map((name) =>
    el("button", { role: "tab", "data-tab": name, onclick: () => app.store.set({ pane: name }) }, app.t(name))));
  return el("nav.tabs", { "aria-label": app.t("view") }, rove(list, '[role="tab"]', (tab) => tab.click()));
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
