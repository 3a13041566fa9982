// The lesson panel: a story whose paragraphs set up the page next to it, with guesses and a task.

import { keepsText, LESSONS, loadServed, requestOf, saveLessons, whyClosed } from "../lessons.js";
import { el, fill, isTouch } from "../dom.js";
import { bestOption, guessBlock } from "./lesson_guess.js";
import { drawFigure } from "./lesson_figures.js";
import { courseList, navigation, newProgress, settled, taskBlock, termsOf, uncover, veil, whenReady } from "./lesson_parts.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../course/parts.js").Lesson} Lesson
 * @typedef {import("../course/parts.js").Progress} Progress
 * @typedef {import("../course/parts.js").Option} Option
 * @typedef {import("../messages.js").MessageKey} MessageKey
 */

/** @type {WeakMap<App, LessonPanel>} */
const PANELS = new WeakMap();
/** Changes after which a figure of the course is drawn again. */
const REDRAWN = ["all", "trace", "size", "theme", "query", "key", "site", "head", "sampling"];
/** Where a paragraph must be to become the current one, as a share of the panel's height. */
const READING_LINE = 0.33;
/** Below 1080 px the story is under the picture, as in the style sheet. @param {App} app */
const isNarrow = ({ root }) => root.clientWidth < 1080;

/**
 * Return the panel, which stays the same when the page around it is rebuilt.
 * @param {App} app
 * @returns {import("../app.js").Pane & { figure: HTMLElement }}
 */
export function lessons(app) {
  const panel = PANELS.get(app) ?? new LessonPanel(app);
  PANELS.set(app, panel);
  return { element: panel.element, figure: panel.figure, update: (changed) => panel.update(changed) };
}

/**
 * Open a lesson; 0 or a number after the last closes the panel.
 * @param {App} app
 * @param {number} number
 */
export function openLesson(app, number) {
  if (LESSONS[number - 1]) return app.store.set({ lesson: number, step: 0 });
  app.store.set({ lesson: 0, step: 0, pane: "", edits: [], drawing: false, editing: false });
}

/**
 * Return the number of the first lesson that is not done.
 * @param {App} app
 */
export function firstUnlearnedLesson({ store }) {
  const left = LESSONS.findIndex(({ name }) => !store.state.learned.includes(name));
  return left < 0 ? 1 : left + 1;
}

class LessonPanel {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.number = 0;
    this.language = "";
    /** @type {App["source"] | null} the trace whose numbers the texts have */
    this.source = null;
    this.why = "";
    this.opening = false;
    /** @type {Progress} */
    this.progress = newProgress("");
    /** @type {Record<string, string | number>} */
    this.facts = {};
    /** @type {Map<number, Option[]>} */
    this.options = new Map();
    this.active = -1;
    this.reported = -1; // the step that the panel wrote last: another one in the state is the reader's
    this.turn = 0;
    this.activations = 0;
    this.closings = 0;
    this.drawings = 0;
    /** @type {number | null} where the panel scrolls to itself; null while the reader scrolls */
    this.aim = null;
    const stop = () => (this.aim = null);
    this.story = el("div.story", { tabindex: 0, onscroll: () => this.onScroll(), onscrollend: () => this.onArrival(), onwheel: stop, ontouchstart: stop, onpointerdown: stop, onkeydown: stop });
    this.list = el("nav.course", { hidden: true });
    this.bar = el("header.lesson-bar");
    this.go = el("div.go");
    this.element = el("section.lesson", {}, this.bar, this.list, this.story, this.go);
    this.figure = el("main.lesson-figure", { hidden: true });
    app.root.addEventListener("click", (event) => this.answerByToken(event), true);
  }

  get lesson() {
    return LESSONS[this.number - 1];
  }

  get steps() {
    const { steps, task } = this.lesson;
    return [...steps, { ...task, text: task.text(this.app), guess: undefined }];
  }

  get isTask() {
    return this.number > 0 && this.active === this.lesson.steps.length;
  }

  /** @param {Set<string>} changed */
  update(changed) {
    const { app } = this;
    const { lesson, language, page } = app.store.state;
    const number = page === "worked" ? 0 : Math.min(lesson, LESSONS.length);
    this.element.hidden = number === 0;
    app.root.classList.toggle("in-lesson", number > 0);
    if (!number) return this.close();
    this.element.setAttribute("aria-label", app.t("lessons"));
    app.root.style.setProperty("--lesson-top", `${/** @type {HTMLElement | null} */ (app.root.querySelector(".top"))?.offsetHeight ?? 45}px`);
    if (number !== this.number) this.begin(number);
    else if (app.source !== this.source && !this.why) this.renew();
    else if (language !== this.language) this.build();
    else if (changed.has("step") && ![this.active, this.reported].includes(app.store.state.step)) this.activate(app.store.state.step);
    this.observe();
    if (REDRAWN.some((one) => changed.has(one))) this.showFigure();
  }

  close() {
    this.number = 0;
    this.active = -1;
    this.turn++;
    this.activations++;
    this.figure.hidden = true;
    if (this.app.root.classList.contains("own-figure")) this.app.redraw?.();
    this.app.root.classList.remove("own-figure", "veiled");
    this.app.root.dataset.lesson = "";
    delete this.app.root.dataset.course;
  }

  /**
   * Set up a lesson: its model and sentence first, then its first paragraph.
   * @param {number} number
   */
  async begin(number) {
    const { app } = this;
    const mine = ++this.turn;
    this.activations++;
    this.number = number;
    app.root.dataset.course = this.lesson.name;
    this.active = -1;
    this.progress = newProgress(this.lesson.name);
    this.options.clear();
    this.facts = {};
    this.why = "";
    this.opening = true;
    this.list.hidden = true;
    this.source = app.source;
    this.story.scrollTop = 0;
    this.build();
    const served = await loadServed(app);
    if (mine !== this.turn) return;
    this.why = whyClosed(app, this.lesson);
    if (this.why) return this.build();
    if (this.lesson.replay && !app.root.dataset.replays) return void location.assign(`?run=${encodeURIComponent(served?.runs[0] ?? "")}#lesson=${number}&language=${app.store.state.language}`);
    const request = requestOf(app, this.lesson, keepsText(app));
    if (!request) return this.renew();
    await whenReady(app.root);
    app.root.dispatchEvent(new CustomEvent("regard-request", { detail: { target: undefined, text: undefined, image: undefined, ...request } }));
  }

  /** Compute the numbers of the texts for the open trace, and go to the current paragraph. */
  async renew() {
    const { app } = this;
    const mine = ++this.turn;
    const fresh = this.opening || this.progress.first === null;
    this.source = app.source;
    const wanted = this.lesson.replay ? null : requestOf(app, this.lesson, !this.opening || keepsText(app));
    if (wanted) return; // another trace came first
    const facts = (await this.lesson.facts?.(app)) ?? {};
    const options = await Promise.all(this.lesson.steps.map(async ({ guess }, i) => /** @type {const} */ ([i, guess ? (this.progress.guesses.get(i)?.options ?? (await guess.options(app).catch(() => []))) : []])));
    if (mine !== this.turn) return;
    this.facts = facts;
    this.options = new Map(options);
    this.opening = false;
    this.build();
    const at = Math.min(app.store.state.step, this.lesson.steps.length);
    if (fresh && at) this.goTo(at);
    else if (fresh) this.activate(at);
    else this.observe();
  }

  /**
   * Return a message with colored terms, keys and the numbers of the lesson.
   * @param {MessageKey} key
   * @param {Record<string, any>} [values]
   */
  say(key, values = {}) {
    return this.app.t.parts(key, { ...termsOf(this.app), ...this.facts, ...values });
  }

  /** Build everything that the panel says. */
  build() {
    const { app, lesson } = this;
    const { t } = app;
    this.language = app.store.state.language;
    fill(this.bar, el("button.course-toggle", { "aria-expanded": String(!this.list.hidden), title: t("lessonList"), "aria-label": `${t("lessonList")}, ${t("lessonOf", { n: this.number, of: LESSONS.length })}`, onclick: () => this.toggleList() }, `${this.number}/${LESSONS.length} ▾`), el("h2", { title: t("lessonOf", { n: this.number, of: LESSONS.length }) }, t(lesson.title)), el("span.gap"), el("button.icon.close", { title: t("close"), "aria-label": t("close"), onclick: () => openLesson(app, 0) }, "×"));
    fill(this.list, courseList(app, this.number, (number) => this.openFromList(number)));
    this.story.setAttribute("aria-label", t(lesson.title));
    const body = this.why ? [el("p.why", { "data-says": "" }, this.why)] : this.opening ? [el("p.note", { "data-says": "" }, t("lessonOpening"))] : this.paragraphs();
    fill(this.story, body);
    this.mark();
    if (!this.why && !this.opening) this.showClosing();
    this.showFigure();
  }

  paragraphs() {
    const { lesson } = this;
    return this.steps.map((step, i) => {
      const task = i === lesson.steps.length;
      const content = task ? this.task() : [el("p", {}, this.say(step.text)), this.guess(i)];
      return el(task ? "section.paragraph.last" : "section.paragraph", { tabindex: -1, role: "group", "aria-label": this.app.t("lessonStep", { n: i + 1, of: this.steps.length }), "data-step": i, onclick: () => i !== this.active && this.goTo(i), onfocusin: () => i !== this.active && this.goTo(i) }, content);
    });
  }

  /** @param {number} i */
  guess(i) {
    const { guess } = this.lesson.steps[i];
    const options = this.options.get(i) ?? [];
    if (!guess || options.length < 2) return "";
    return guessBlock(this.app, guess, options, { guessed: this.progress.guesses.get(i) ?? null, say: (key, values) => this.say(key, values), choose: (chosen) => this.choose(i, chosen) });
  }

  task() {
    const { app, lesson, progress } = this;
    const text = isTouch() && lesson.task.touch ? lesson.task.touch : lesson.task.text(app);
    return taskBlock(app, this.say(text), progress, app.store.state.learned.includes(lesson.name));
  }

  /**
   * @param {number} i
   * @param {number} chosen
   */
  choose(i, chosen) {
    const { guess } = this.lesson.steps[i];
    const options = this.options.get(i);
    if (!guess || !options || this.progress.guesses.has(i)) return;
    this.progress.guesses.set(i, { options, chosen, best: bestOption(guess, options) });
    const old = this.story.querySelector(`[data-step="${i}"] .guess`);
    old?.replaceWith(/** @type {HTMLElement} */ (this.guess(i)));
    /** @type {HTMLElement | null} */ (this.story.querySelector(`[data-step="${i}"]`))?.focus({ preventScroll: true });
    if (i !== this.active) this.goTo(i);
    this.showFigure();
  }

  /**
   * Take a click on a token of the text as an answer while a question waits for one.
   * @param {Event} event
   */
  answerByToken(event) {
    const token = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest?.(".texts .token"));
    if (!token || this.element.hidden || !this.isVeiled()) return;
    const i = (this.options.get(this.active) ?? []).findIndex(({ side, at }) => side === token.dataset.side && at === Number(token.dataset.i));
    event.stopPropagation();
    if (i >= 0) this.choose(this.active, i);
  }

  isVeiled() {
    return !this.why && !this.opening && this.active >= 0 && Boolean(this.lesson.steps[this.active]?.guess) && (this.options.get(this.active)?.length ?? 0) > 1 && !this.progress.guesses.has(this.active);
  }

  /**
   * Make a paragraph the current one: set up the page that it talks about.
   * @param {number} i
   */
  async activate(i) {
    const { app } = this;
    const step = this.steps[i];
    if (!step || this.why || this.opening) return;
    const mine = ++this.activations;
    this.active = i;
    this.mark();
    const parts = (await step.set?.(app)) ?? {};
    if (mine !== this.activations || !this.number) return;
    this.reported = i;
    Object.assign(this.progress.own, { mark: "" }, step.own);
    app.store.set({ ...parts, ...(isNarrow(app) ? { editing: false } : {}), step: i }); // there the drawer would hide the task
    this.showFigure();
    await settled(app.root);
    if (mine !== this.activations || !this.isTask) return;
    this.progress.first ??= app.store.state;
    this.observe();
    this.story.querySelector(".task")?.setAttribute("data-ready", "true");
  }

  /**
   * Scroll to a paragraph and make it the current one.
   * @param {number} i
   */
  goTo(i) {
    const section = /** @type {HTMLElement | null} */ (this.story.querySelector(`[data-step="${i}"]`));
    if (!section) return;
    this.aim = Math.min(section.offsetTop - 10, this.story.scrollHeight - this.story.clientHeight);
    const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth";
    this.story.scrollTo({ top: this.aim, behavior: /** @type {ScrollBehavior} */ (behavior) });
    this.activate(i);
  }

  /** Follow the reader again; a scroll that ended elsewhere was an earlier one. */
  onArrival() {
    if (this.aim !== null && Math.abs(this.story.scrollTop - this.aim) < 2) this.aim = null;
  }

  onScroll() {
    if (this.aim !== null || this.opening || this.why || !this.number) return;
    const sections = /** @type {HTMLElement[]} */ ([...this.story.querySelectorAll(".paragraph")]);
    const { scrollTop, clientHeight, scrollHeight } = this.story;
    const line = scrollTop + READING_LINE * clientHeight;
    const passed = sections.filter((section) => section.offsetTop <= line).length - 1;
    const at = scrollTop + clientHeight >= scrollHeight - 4 ? sections.length - 1 : Math.max(0, passed);
    if (at !== this.active) this.activate(at);
  }

  /** Mark the current paragraph. */
  mark() {
    const { app, active } = this;
    for (const section of this.story.querySelectorAll(".paragraph")) {
      if (Number(section.getAttribute("data-step")) === active) section.setAttribute("aria-current", "step");
      else section.removeAttribute("aria-current");
    }
    app.root.dataset.lesson = active >= 0 && this.isTask && !this.progress.done ? this.lesson.name : "";
    fill(this.go, navigation(app, this.number, { active, count: this.why || this.opening ? 0 : this.steps.length, done: this.progress.done }, { goTo: (i) => this.goTo(i), open: (number) => openLesson(app, number) }));
  }

  /** Notice what the reader does, and whether the task is done. */
  observe() {
    const { app, progress } = this;
    const { state } = app.store;
    if (!this.number || this.why || this.opening || !this.isTask || progress.first === null) return;
    const { site, head, before, after } = app.open;
    if (site.path !== state.site || head !== state.head) return; // still loading
    progress.heads.add(`${site.path} ${head}`);
    progress.sources.add(app.source);
    if (after.temperature < before.temperature) progress.temperature.low = true;
    if (after.temperature > before.temperature) progress.temperature.high = true;
    if (!progress.done && this.lesson.task.done(app, progress)) this.finish();
    else if (progress.done) this.showClosing();
  }

  finish() {
    const { app, progress, lesson } = this;
    progress.done = true;
    const learned = [...new Set([...app.store.state.learned, lesson.name])];
    saveLessons(learned);
    app.store.set({ learned });
    const block = this.story.querySelector(".task-block");
    block?.replaceWith(this.task());
    fill(this.list, courseList(app, this.number, (number) => this.openFromList(number)));
    this.mark();
    this.showClosing();
  }

  /** Say what the reader's own numbers are. */
  async showClosing() {
    const { app, progress, lesson } = this;
    const place = this.story.querySelector(".closing");
    if (!progress.done || !place || app.source !== this.source || !lesson.task.done(app, progress)) return; // the line stays true
    const mine = ++this.closings;
    const found = await lesson.task.closing(app, progress).catch(() => null);
    if (mine !== this.closings || !found || !place.isConnected) return;
    const text = (progress.closing = app.t(found.text, found.values));
    if (place.textContent !== text) place.textContent = text;
  }

  /** Show the figure of the paragraph, a veil before a guess, or the page. */
  showFigure() {
    const { app, figure } = this;
    if (!this.number) return;
    const step = this.active >= 0 && !this.why && !this.opening ? this.steps[this.active] : null;
    const veiled = this.isVeiled();
    const mine = ++this.drawings;
    app.root.classList.toggle("veiled", veiled);
    const covered = app.root.classList.contains("own-figure");
    app.root.classList.toggle("own-figure", veiled || Boolean(step?.figure));
    if (covered && !app.root.classList.contains("own-figure")) uncover(app);
    figure.hidden = !veiled && !step?.figure;
    figure.setAttribute("aria-busy", "false"); // a drawing that is dropped does not say so
    if (veiled) return fill(figure, veil(app, isNarrow(app)));
    if (!step?.figure) return fill(figure);
    const report = (/** @type {Record<string, any>} */ own) => {
      Object.assign(this.progress.own, own);
      this.observe();
    };
    drawFigure(step.figure, app, figure, { own: this.progress.own, report, isLatest: () => mine === this.drawings });
  }

  toggleList() {
    this.list.hidden = !this.list.hidden;
    this.bar.querySelector(".course-toggle")?.setAttribute("aria-expanded", String(!this.list.hidden));
    if (!this.list.hidden) /** @type {HTMLElement | null} */ (this.list.querySelector("[aria-current]"))?.focus();
  }

  /** @param {number} number */
  openFromList(number) {
    if (number === this.number) this.toggleList();
    else openLesson(this.app, number);
  }
}
