// Decoding as theatre: the answer is written token by token. The query looks at its keys, the
// distribution rises, the choice falls into the text; beam search grows as a tree.

import { el, fill } from "../dom.js";
import { probability } from "../format.js";
import { fall, move, MOVE, reducesMotion } from "../motion.js";
import { mostAligned } from "../selection.js";
import { labelOf } from "../tokens.js";
import { candidateBars } from "./decoding_bars.js";
import { decodingControls, samplingControls } from "./decoding_controls.js";
import { decodingStage } from "./decoding_stage.js";
import { searchTree } from "./decoding_tree.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Decoding} Decoding
 * @typedef {import("./decoding_stage.js").WrittenHead} WrittenHead
 */

/**
 * What a reader has set up; it survives a change of language.
 * @typedef {object} Session
 * @property {import("../source.js").Source} trace the trace whose answer is written
 * @property {number[]} forced tokens that the reader chose, and those before them
 * @property {number[]} choices the positions of those that the reader chose
 * @property {number} at tokens written
 * @property {boolean} starts whether to play as soon as everything is loaded
 * @property {{ topK: number | null, topP: number | null, seed: number, speed: number }} settings
 * @property {{ key: string, info: Decoding, source: import("../source.js").Source | null, head: WrittenHead | null } | null} loaded
 */

/** @type {WeakMap<App, Session>} */
const SESSIONS = new WeakMap();

/**
 * Return whether the answer of the open trace was written token by token by a model that can run.
 * @param {App} app
 */
export function canWrite({ source, about }) {
  return Boolean(source.model?.decode && about.output && (about.output.next || about.tokens.output));
}

/**
 * Open the page and play.
 * @param {App} app
 */
export function startWriting(app) {
  const session = sessionOf(app);
  Object.assign(session, { at: 0, starts: true });
  app.store.set({ page: "decoding" });
}

/**
 * @param {App} app
 * @returns {Session}
 */
function sessionOf(app) {
  const old = SESSIONS.get(app);
  if (old?.trace === app.source) return old;
  const settings = old?.settings ?? { topK: null, topP: null, seed: 0, speed: 1 };
  const made = { trace: app.source, forced: [], choices: [], at: Infinity, starts: false, settings, loaded: null };
  SESSIONS.set(app, made);
  return made;
}

/**
 * The page on which the answer is written.
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function decoding(app) {
  const theatre = new Theatre(app);
  return {
    element: theatre.element,
    update: (changed) => {
      if (["all", "trace", "edits", "sampling", "site", "head"].some((one) => changed.has(one))) theatre.load();
      else if (changed.has("size")) theatre.show();
    },
  };
}

class Theatre {
  /** @param {App} app */
  constructor(app) {
    const { t } = app;
    this.app = app;
    this.run = 0; // a new number ends what is playing
    this.playing = false;
    this.loads = 0;
    this.controls = decodingControls(app, { toggle: () => this.toggle(), step: (by) => this.step(by), seek: (at) => this.seek(at), speed: (speed) => (this.session.settings.speed = speed), close: () => app.store.set({ page: "flow" }) });
    this.sampling = el("div.sampling-line");
    this.strip = el("div.strip", { role: "list", "aria-label": t("decodingStrip") });
    this.stage = decodingStage(app);
    this.bars = candidateBars(app, (id) => this.branch([...this.info.ids.slice(0, Math.max(0, this.session.at - 1)), id]));
    this.tree = searchTree(app, (ids) => this.branch(ids));
    this.tree.element.hidden = true; // until there is a search
    this.says = el("p.says", { "data-says": "" });
    this.about = el("p.branch-note");
    this.element = el("main.decoding-page", { tabindex: -1, "aria-label": t("decodingLabel"), onkeydown: (/** @type {KeyboardEvent} */ event) => this.press(event) },
      el("div.decoding-top", {}, this.controls.element, this.sampling, this.controls.close), this.strip, el("div.says-line", {}, this.says, this.about),
      el("div.decoding-middle", {}, this.stage.element, this.bars.element), this.tree.element);
  }

  get session() {
    return sessionOf(this.app);
  }

  get info() {
    return /** @type {NonNullable<Session["loaded"]>} */ (this.session.loaded).info;
  }

  get speed() {
    return this.session.settings.speed;
  }

  /** Write the text with the present settings, and trace it. */
  async load() {
    const { app, session } = this;
    const { model } = app.source;
    if (!canWrite(app) || !model?.decode) return fill(this.element, el("p.note", {}, app.t("answerNeedsModel")));
    const { forced, settings } = session;
    const sampled = Boolean(app.about.output.next);
    const query = sampled ? { temperature: app.store.state.sampling, top_k: settings.topK, top_p: settings.topP, seed: settings.seed, forced } : { forced };
    const { edits } = app.store.state;
    const key = JSON.stringify([query, edits, app.open.site.path, app.open.head]);
    fill(this.sampling, sampled ? samplingControls(app, settings, () => this.load()) : "");
    if (session.loaded?.key === key) return this.ready();
    const mine = ++this.loads;
    this.stop();
    this.element.setAttribute("aria-busy", "true");
    if (!session.loaded) fill(this.says, app.t("decodingLoading"));
    try {
      const found = await model.decode(edits, query);
      const head = await openWritten(app, found);
      if (mine !== this.loads || session.trace !== app.source) return;
      session.loaded = { key, ...found, head };
      this.ready();
    } catch (error) {
      if (mine === this.loads) fill(this.says, el("span.error", {}, app.t.error(error)));
    } finally {
      if (mine === this.loads) this.element.setAttribute("aria-busy", "false");
    }
  }

  /** Show what is loaded, and play if the reader asked for it. */
  ready() {
    const { session } = this;
    session.at = Math.min(session.at, this.info.steps.length);
    this.element.setAttribute("aria-busy", "false");
    this.tree.element.hidden = !this.info.tree?.length;
    this.show();
    if (!session.starts) return;
    session.starts = false;
    this.toggle();
  }

  /**
   * Show the text so far without motion.
   * @param {boolean} [pending] whether the last token is not chosen yet
   */
  show(pending = false) {
    const { session, info } = this;
    if (!session.loaded) return;
    const { at } = session;
    const names = info.steps.map((one) => labelOf(one.name));
    this.showStrip(names, pending);
    this.stage.show(session.loaded.head, at, names, pending);
    if (!pending) this.bars.show(at ? info.steps[at - 1] : null, info.kind === "sample");
    this.showTree(at - Number(pending));
    this.showWords(pending);
    this.controls.refresh({ at, count: info.steps.length, playing: this.playing, speed: this.speed });
    this.element.dataset.at = String(at);
  }

  /**
   * @param {string[]} names
   * @param {boolean} pending
   */
  showStrip(names, pending) {
    const { t, about } = this.app;
    const { at } = this.session;
    const before = about.output.next ? about.tokens.target.slice(-24).map((token) => el("span.given", { role: "listitem" }, labelOf(token))) : [];
    const written = names.slice(0, at).map((name, i) => {
      const forced = this.session.choices.includes(i);
      return el("span", { role: "listitem" }, el(`button.written-token${i === at - 1 ? ".newest" : ""}${pending && i === at - 1 ? ".unwritten" : ""}${forced ? ".forced" : ""}`, { title: t("decodingAt", { at: i + 1, n: names.length }), onclick: () => this.seek(i + 1) }, name));
    });
    fill(this.strip, before, written, at < names.length && !pending ? el("span.slot", { "aria-hidden": "true" }) : "");
    this.strip.scrollLeft = this.strip.scrollWidth;
  }

  /** @param {number} at */
  showTree(at) {
    const { tree, steps } = this.info;
    if (!tree?.length) return;
    const { answer } = /** @type {any} */ (this.app.about);
    this.tree.show(tree, at === steps.length ? Math.max(...tree.map((node) => node.step)) : at, { prefix: this.session.forced, keeps: answer?.beam ?? 4 });
  }

  /**
   * Say what was chosen, and how the text came about.
   * @param {boolean} pending
   */
  showWords(pending) {
    const { app, info, session } = this;
    const { t } = app;
    const step = info.steps[session.at - 1];
    const chosen = step?.candidates.find((one) => one.id === step.chosen);
    fill(this.says, step && chosen && !pending ? t(session.choices.includes(session.at - 1) ? "chosenForced" : wordsFor(info, chosen.rank), { token: labelOf(step.name), p: probability(chosen.probability), rank: chosen.rank + 1 }) : "");
    const last = info.steps[session.forced.length - 1];
    const again = el("button.quiet", { onclick: () => this.branch([]) }, t("ownText"));
    const open = (/** @type {any} */ detail) => el("button.quiet", { onclick: () => app.root.dispatchEvent(new CustomEvent("regard-request", { detail })) }, t("exploreText"));
    const request = /** @type {any} */ (app.about).asked ?? {};
    const detail = info.kind === "sample" ? { text: info.text } : { ...request, edits: undefined, target: info.ids };
    const changed = info.kind === "sample" ? info.traceable : session.forced.length > 0;
    fill(this.about, last && session.forced.length ? [t("branched", { token: labelOf(last.name) }), again] : "",
      info.kind === "given" ? t("beamGiven") : "", info.is_answer ? "" : t("beamOther", { text: info.text }), changed ? open(detail) : "");
  }

  /**
   * Write the text again with these tokens at its start.
   * @param {number[]} forced
   */
  branch(forced) {
    const { session } = this;
    session.forced = forced;
    session.choices = forced.length ? [...session.choices.filter((one) => one < forced.length - 1), forced.length - 1] : [];
    session.at = forced.length;
    session.starts = forced.length > 0 && !reducesMotion();
    if (!forced.length) session.at = Infinity;
    this.load();
  }

  stop() {
    this.run++;
    this.playing = false;
  }

  toggle() {
    if (!this.session.loaded) return;
    if (this.playing) {
      this.stop();
      return this.show();
    }
    if (this.session.at >= this.info.steps.length) this.session.at = 0;
    this.play();
  }

  /** @param {number} by */
  step(by) {
    if (!this.session.loaded) return;
    if (by < 0) return this.seek(this.session.at - 1);
    this.stop();
    if (this.session.at < this.info.steps.length) this.writeToken(++this.run);
  }

  /** @param {number} at */
  seek(at) {
    if (!this.session.loaded) return;
    this.stop();
    this.session.at = Math.max(0, Math.min(this.info.steps.length, at));
    this.show();
  }

  async play() {
    const mine = ++this.run;
    this.playing = true;
    while (mine === this.run && this.element.isConnected && this.session.at < this.info.steps.length) await this.writeToken(mine);
    if (mine !== this.run) return;
    this.playing = false;
    this.show();
  }

  /**
   * Write one token: query, lines, distribution, choice, tree.
   * @param {number} run ends as soon as another one has started
   */
  async writeToken(run) {
    const { speed } = this;
    const at = ++this.session.at;
    this.bars.show(null, this.info.kind === "sample");
    this.show(true);
    const token = this.strip.querySelector(".written-token.newest");
    const parts = [
      () => this.stage.look(speed),
      () => (this.bars.show(this.info.steps[at - 1], this.info.kind === "sample"), this.bars.rise(speed)),
      () => rest((reducesMotion() ? 500 : 160) / speed),
      () => this.fallInto(token, speed),
      () => (this.show(), Promise.all([this.stage.join(speed), this.info.tree?.length ? this.tree.grow(at, speed) : null])),
      () => rest(160 / speed),
    ];
    for (const part of parts) {
      await part();
      if (run !== this.run) return;
    }
  }

  /**
   * @param {Element | null} token
   * @param {number} speed
   */
  async fallInto(token, speed) {
    const from = this.bars.chosen();
    if (from && token) await fall(from, token, MOVE / speed);
    token?.classList.remove("unwritten");
    await move(token, { transform: "translateY(-3px)" }, 120 / speed);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.closest("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { " ": () => this.toggle(), ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1) }[event.key];
    if (!act || (event.key === " " && target.closest("button, summary"))) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
}

/**
 * Wait.
 * @param {number} time in milliseconds
 */
function rest(time) {
  return new Promise((done) => setTimeout(done, time));
}

/**
 * @param {Decoding} info
 * @param {number} rank
 */
function wordsFor(info, rank) {
  if (rank === 0) return "chosenBest";
  return info.kind === "beam" ? "chosenBeam" : "chosenRank";
}

/**
 * Load the weights of the open head, or of the one that the model opens with, for the written text.
 * @param {App} app
 * @param {{ info: Decoding, source: import("../source.js").Source | null }} found
 * @returns {Promise<WrittenHead | null>}
 */
async function openWritten(app, { info, source }) {
  if (!source) return null;
  const [about, sites] = await Promise.all([source.about(), source.sites()]);
  const writing = sites.filter((one) => one.asks === "target");
  const chosen = [{ site: app.open.site.path, head: app.open.head }, about.start].find((one) => writing.some(({ path }) => path === one.site));
  const { site: path, head } = chosen ?? await mostAligned(source, writing);
  const site = writing.find((one) => one.path === path);
  if (!site) return null;
  const span = (/** @type {number} */ n) => ({ start: 0, stop: n, bins: n });
  const weights = await source.tile(site.path, head, "weights", span(site.n_query), span(site.n_key));
  const written = info.ids.length - (info.finished ? 1 : 0);
  const first = info.kind === "sample" ? about.tokens.target.length - written - 1 : 0;
  return { site, head, weights, about, first };
}
