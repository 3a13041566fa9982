// The lesson panel: one lesson at a time, checked off when its task is done.

import { el, fill } from "../dom.js";
import { formula, root, v } from "../formula.js";
import { lessonState, LESSONS } from "../lessons.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../lessons.js").LessonProgress} LessonProgress
 * @typedef {import("../messages.js").MessageKey} MessageKey
 */

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function lessons(app) {
  const element = el("section.lesson", { "aria-label": app.t("lessons") });
  let shown = "";
  return {
    element,
    update: (changed) => {
      const { lesson, page } = app.store.state;
      const number = page === "explore" ? Math.min(lesson, LESSONS.length) : 0;
      element.hidden = number === 0;
      app.root.classList.toggle("in-lesson", number > 0);
      app.root.dataset.lesson = number && !app.store.state.learned.includes(number) ? LESSONS[number - 1].name : "";
      if (!number) return;
      if (isJustDone(app, number)) app.store.set({ learned: [...app.store.state.learned, number].sort((a, b) => a - b) });
      const now = JSON.stringify([number, app.store.state.learned, taskOf(app, number)]);
      if (now !== shown || changed.has("all")) show(app, element, number);
      shown = now;
    },
  };
}

/**
 * Open a lesson; 0 or a number after the last closes the panel.
 * @param {App} app
 * @param {number} number
 */
export function openLesson(app, number) {
  PROGRESS.delete(app);
  app.store.set(lessonState(app, number));
}

/**
 * Return the number of the first lesson that is not done.
 * @param {App} app
 */
export function firstUnlearnedLesson({ store }) {
  const left = LESSONS.findIndex((_, i) => !store.state.learned.includes(i + 1));
  return left < 0 ? 1 : left + 1;
}

/** @type {WeakMap<App, LessonProgress & { number: number, source: App["source"] }>} */
const PROGRESS = new WeakMap();

/**
 * Return whether the reader has just done the task of a lesson.
 * @param {App} app
 * @param {number} number
 */
function isJustDone(app, number) {
  const { state } = app.store;
  let progress = PROGRESS.get(app);
  if (progress?.number !== number || progress.source !== app.source) {
    progress = { number, source: app.source, first: state, peeked: false, heads: new Set(), temperature: { low: false, high: false } };
    PROGRESS.set(app, progress);
  }
  const { site, head, before, after } = app.open;
  if (app.peek) progress.peeked = true;
  progress.heads.add(`${site.path} ${head}`);
  if (after.temperature < before.temperature) progress.temperature.low = true;
  if (after.temperature > before.temperature) progress.temperature.high = true;
  return !state.learned.includes(number) && LESSONS[number - 1].done(app, progress);
}

/**
 * @param {App} app
 * @param {number} number
 * @returns {MessageKey}
 */
function taskOf(app, number) {
  const { possible, task } = LESSONS[number - 1];
  return !possible || possible(app) ? task(app) : "lessonCannot";
}

/**
 * @param {App} app
 * @param {Element} element
 * @param {number} number
 */
function show(app, element, number) {
  const { t } = app;
  const done = app.store.state.learned.includes(number);
  const name = LESSONS[number - 1].name;
  const title = t(/** @type {MessageKey} */ (`lesson${name}`));
  const focused = element.contains(document.activeElement) ? document.activeElement?.getAttribute("data-go") : null;
  fill(element,
    el("button.icon.close", { title: t("close"), "aria-label": t("close"), onclick: () => openLesson(app, 0) }, "×"),
    el("div.explanation", {}, el("h2", {}, el("span.small", {}, `${number} `), title), el("p", {}, filled(app, /** @type {MessageKey} */ (`lesson${name}Text`)))),
    el("div.exercise", {},
      el("p.task", { "data-done": String(done) }, el("span.tick", { "aria-hidden": "true" }, done ? "✓" : "→"), el("span", {}, filled(app, taskOf(app, number)))),
      el("div.go", {},
        dots(app, number),
        el("span.done-note", { role: "status" }, done ? t("lessonDone") : ""),
        number > 1 ? navigationButton(app, number - 1, "lessonBack", false) : "",
        navigationButton(app, number + 1, number === LESSONS.length ? "lessonEnd" : done ? "lessonNext" : "lessonSkip", done))));
  if (focused) /** @type {HTMLElement | null} */ (element.querySelector(`[data-navigationButton="${focused}"]`))?.focus();
}

/**
 * Buttons for all lessons, with a check mark on those that are done.
 * @param {App} app
 * @param {number} number
 */
function dots(app, number) {
  const { t } = app;
  return el("ol.dots", { "aria-label": t("lessonOf", { n: number, of: LESSONS.length }) }, LESSONS.map(({ name }, i) => {
    const done = app.store.state.learned.includes(i + 1);
    const title = `${i + 1}. ${t(/** @type {MessageKey} */ (`lesson${name}`))}${done ? " ✓" : ""}`;
    const here = i + 1 === number;
    return el("li", {}, el("button.dot", { title, "aria-label": title, "aria-current": here ? "step" : undefined, "data-go": `dot${i + 1}`, "data-done": String(done), onclick: () => openLesson(app, i + 1) }, done && !here ? "✓" : i + 1));
  }));
}

/**
 * @param {App} app
 * @param {number} number
 * @param {MessageKey} word
 * @param {boolean} first whether this is the main action
 */
function navigationButton(app, number, word, first) {
  const way = word === "lessonBack" ? "back" : "on";
  return el(first ? "button.run" : "button.quiet", { "data-go": way, onclick: () => openLesson(app, number) }, app.t(word));
}

/**
 * Return a message with colored terms and keys.
 * @param {App} app
 * @param {MessageKey} word
 */
function filled(app, word) {
  const { t } = app;
  const term = (/** @type {string} */ role, /** @type {MessageKey} */ name) => el(`b.term.${role}`, {}, t(name));
  const key = (/** @type {string} */ text) => text.split(" ").map((one) => el("kbd", {}, one));
  return t.parts(word, {
    ...{ q: term("query", "termQuery"), k: term("key", "termKey"), v: term("value", "termValue"), w: term("weight", "termWeight") },
    ...{ root: () => formula("√d_k", root(v("d", "k"))), dk: () => formula("d_k", v("d", "k")) },
    ...{ arrows: key("↑ ↓ ← →"), left: key("←"), right: key("→"), down: key("↓"), enter: key("Enter"), s: key("s"), two: key("2"), brackets: key("[ ]") },
  });
}
