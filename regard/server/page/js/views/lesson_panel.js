// The guided tour: one lesson at a time above the panes, ticked off when the reader has done it.

import { el, fill } from "../dom.js";
import { formula, root, v } from "../formula.js";
import { beginning, LESSONS } from "../lessons.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../lessons.js").Since} Since
 * @typedef {import("../messages.js").Word} Word
 */

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function lessons(app) {
  const element = el("section.lesson", { "aria-label": app.say("lessons") });
  let shown = "";
  return {
    element,
    update: (changed) => {
      const { lesson, page } = app.store.state;
      const number = page === "explore" ? Math.min(lesson, LESSONS.length) : 0;
      element.hidden = number === 0;
      app.root.classList.toggle("touring", number > 0);
      app.root.dataset.lesson = number && !app.store.state.learned.includes(number) ? LESSONS[number - 1].name : "";
      if (!number) return;
      if (notices(app, number)) app.store.set({ learned: [...app.store.state.learned, number].sort((a, b) => a - b) });
      const now = JSON.stringify([number, app.store.state.learned, taskOf(app, number)]);
      if (now !== shown || changed.has("all")) show(app, element, number);
      shown = now;
    },
  };
}

/**
 * Open a lesson; 0 or one behind the last closes them.
 * @param {App} app
 * @param {number} number
 */
export function openLesson(app, number) {
  SINCE.delete(app);
  app.store.set(beginning(app, number));
}

/**
 * The first that is not learned yet.
 * @param {App} app
 */
export function firstLesson({ store }) {
  const left = LESSONS.findIndex((_, i) => !store.state.learned.includes(i + 1));
  return left < 0 ? 1 : left + 1;
}

/** @type {WeakMap<App, Since & { number: number, source: App["source"] }>} */
const SINCE = new WeakMap();

/**
 * Whether the reader has just done what a lesson asks for.
 * @param {App} app
 * @param {number} number
 */
function notices(app, number) {
  const { state } = app.store;
  let since = SINCE.get(app);
  if (since?.number !== number || since.source !== app.source) {
    since = { number, source: app.source, first: state, peeked: false, heads: new Set(), heat: { low: false, high: false } };
    SINCE.set(app, since);
  }
  const { site, head, before, after } = app.open;
  if (app.peek) since.peeked = true;
  since.heads.add(`${site.path} ${head}`);
  if (after.temperature < before.temperature) since.heat.low = true;
  if (after.temperature > before.temperature) since.heat.high = true;
  return !state.learned.includes(number) && LESSONS[number - 1].done(app, since);
}

/**
 * @param {App} app
 * @param {number} number
 * @returns {Word}
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
  const { say } = app;
  const done = app.store.state.learned.includes(number);
  const name = LESSONS[number - 1].name;
  const title = say(/** @type {Word} */ (`lesson${name}`));
  const focused = element.contains(document.activeElement) ? document.activeElement?.getAttribute("data-go") : null;
  fill(element,
    el("button.icon.close", { title: say("close"), "aria-label": say("close"), onclick: () => openLesson(app, 0) }, "×"),
    el("div.says", {}, el("h2", {}, el("span.small", {}, `${number} `), title), el("p", {}, filled(app, /** @type {Word} */ (`lesson${name}Text`)))),
    el("div.does", {},
      el("p.task", { "data-done": String(done) }, el("span.tick", { "aria-hidden": "true" }, done ? "✓" : "→"), el("span", {}, filled(app, taskOf(app, number)))),
      el("div.go", {},
        dots(app, number),
        el("span.said", { role: "status" }, done ? say("lessonDone") : ""),
        number > 1 ? go(app, number - 1, "lessonBack", false) : "",
        go(app, number + 1, number === LESSONS.length ? "lessonEnd" : done ? "lessonNext" : "lessonSkip", done))));
  if (focused) /** @type {HTMLElement | null} */ (element.querySelector(`[data-go="${focused}"]`))?.focus();
}

/**
 * All lessons, the learned ones ticked.
 * @param {App} app
 * @param {number} number
 */
function dots(app, number) {
  const { say } = app;
  return el("ol.dots", { "aria-label": say("lessonOf", { n: number, of: LESSONS.length }) }, LESSONS.map(({ name }, i) => {
    const done = app.store.state.learned.includes(i + 1);
    const title = `${i + 1}. ${say(/** @type {Word} */ (`lesson${name}`))}${done ? " ✓" : ""}`;
    const here = i + 1 === number;
    return el("li", {}, el("button.dot", { title, "aria-label": title, "aria-current": here ? "step" : undefined, "data-go": `dot${i + 1}`, "data-done": String(done), onclick: () => openLesson(app, i + 1) }, done && !here ? "✓" : i + 1));
  }));
}

/**
 * @param {App} app
 * @param {number} number
 * @param {Word} word
 * @param {boolean} first whether this is what to do now
 */
function go(app, number, word, first) {
  const way = word === "lessonBack" ? "back" : "on";
  return el(first ? "button.run" : "button.quiet", { "data-go": way, onclick: () => openLesson(app, number) }, app.say(word));
}

/**
 * A sentence with its colored terms and keys of the keyboard.
 * @param {App} app
 * @param {Word} word
 */
function filled(app, word) {
  const { say } = app;
  const term = (/** @type {string} */ role, /** @type {Word} */ name) => el(`b.term.${role}`, {}, say(name));
  const key = (/** @type {string} */ text) => text.split(" ").map((one) => el("kbd", {}, one));
  return say.parts(word, {
    ...{ q: term("query", "termQuery"), k: term("key", "termKey"), v: term("value", "termValue"), w: term("weight", "termWeight") },
    ...{ root: () => formula("√d_k", root(v("d", "k"))), dk: () => formula("d_k", v("d", "k")) },
    ...{ arrows: key("↑ ↓ ← →"), left: key("←"), right: key("→"), down: key("↓"), enter: key("Enter"), s: key("s"), two: key("2"), brackets: key("[ ]") },
  });
}
