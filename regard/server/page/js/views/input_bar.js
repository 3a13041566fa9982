// The line at the top of a live page: which model, what it reads, what else it could have said.

import { el, fill } from "../dom.js";
import { short } from "../format.js";
import { askFor, sendImage } from "../http.js";
import { labelOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../live.js").Live} Live
 */

/** @type {Record<string, import("../messages.js").Word>} */
export const DOING = { waiting: "doing_waiting", loading: "doing_loading", writing: "doing_writing", tracing: "doing_tracing" };

/**
 * @param {App} app
 * @param {Live} live
 * @returns {import("../app.js").Pane}
 */
export function askBar(app, live) {
  const line = el("div.line");
  const others = el("div.others");
  const told = el("p.told", { role: "status", "aria-live": "polite" });
  const element = el("section.ask", { "aria-label": app.say("input") }, line, told, others);
  const tell = () => fill(told, toldOf(app, live));
  app.root.addEventListener("live", () => (element.isConnected ? tell() : undefined));
  let shown = /** @type {any} */ (null);
  return {
    element,
    update: (changed) => {
      element.hidden = app.store.state.page !== "explore" && live.models.length > 0;
      if (changed.has("all")) fill(line, live.models.length ? controls(app, live) : app.say("noModel"));
      if (changed.has("all") || shown !== app.source) fill(others, alternatives(app, live, others));
      shown = app.source;
      tell();
    },
  };
}

/**
 * @param {App} app
 * @param {Live} live
 */
function controls(app, live) {
  const { say } = app;
  const asked = live.asked ?? { model: live.models[0].name };
  const about = live.models.find((one) => one.name === asked.model);
  const models = el("select.models", { "aria-label": say("model"), onchange: () => askFirst(live, models.value) },
    live.models.map((one) => el("option", { value: one.name, selected: one.name === asked.model }, one.name)));
  const examples = el("select.examples", { "aria-label": say("examples"), onchange: () => askExample(live, about, Number(examples.value)) },
    el("option", { value: -1 }, say("examples")),
    about.examples.map((/** @type {any} */ one, /** @type {number} */ i) => el("option", { value: i }, one.text ?? one.name)));
  return [models, about.reads === "image" ? imageField(app, live, about) : textField(app, live), about.examples.length ? examples : ""];
}

/**
 * @param {App} app
 * @param {Live} live
 */
function textField(app, live) {
  const { say } = app;
  const own = live.asked?.text ?? "";
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = field.value;
    if (text.trim() && live.asked) live.ask({ model: live.asked.model, text: app.about.family === "decoder" ? text : text.trim(), beam: live.asked.beam });
  };
  const onkeydown = (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && submit(event);
  const field = el("textarea.text", { rows: Math.min(3, own.trimEnd().split("\n").length), "aria-label": say("typeText"), placeholder: say("typeText"), value: own, autocomplete: "off", spellcheck: "false", onkeydown });
  return el("form.type", { onsubmit: submit }, field, el("button.run", { type: "submit" }, say("run")));
}

/**
 * @param {App} app
 * @param {Live} live
 * @param {any} about
 */
function imageField(app, live, about) {
  const send = async (/** @type {File | undefined} */ file) => {
    if (file) live.ask({ model: about.name, image: await sendImage(file) });
  };
  const field = el("input.unseen", { type: "file", accept: "image/*", onchange: () => send(field.files[0]) });
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    send(event.dataTransfer?.files[0]);
  };
  return el("label.drop", { ondragover: (/** @type {Event} */ event) => event.preventDefault(), ondrop: drop }, app.say("chooseImage"), field);
}

/**
 * @param {Live} live
 * @param {string} name
 */
function askFirst(live, name) {
  const about = live.models.find((one) => one.name === name);
  if (about.examples.length) askExample(live, about, 0);
}

/**
 * @param {Live} live
 * @param {any} about
 * @param {number} i
 */
function askExample(live, about, i) {
  const one = about.examples[i];
  if (one) live.ask({ model: about.name, text: one.text, image: one.image, target: one.target });
}

/**
 * How far it is, or what went wrong.
 * @param {App} app
 * @param {Live} live
 */
function toldOf(app, live) {
  const { say } = app;
  if (live.fault) return el("span.fault", {}, live.fault);
  if (!live.progress) return "";
  const { doing, done, of } = live.progress;
  const far = of ? ` ${done}/${of}` : "";
  return [say(DOING[doing] ?? "loading"), far, " ", el("button.quiet", { onclick: () => live.stop() }, say("stop"))];
}

/**
 * Other translations: those the beam ended with, and those that begin with another word.
 * @param {App} app
 * @param {Live} live
 * @param {HTMLElement} place
 */
function alternatives(app, live, place) {
  const { say, about } = app;
  const answer = /** @type {any} */ (about).answer;
  const { asked } = live;
  if (answer?.kind === "next" && asked?.text) return writing(app, live);
  if (answer?.kind !== "translation" || !asked) return "";
  const choice = (/** @type {string} */ text, /** @type {number} */ number, /** @type {number[]} */ ids, lead = "") =>
    el("button.other", { onclick: () => live.ask({ ...asked, target: ids }) }, lead ? el("b", {}, lead) : "", " ", text, " ", el("span.digits", {}, short(number)));
  const more = el("button.quiet.words", {
    onclick: async () => {
      const position = Math.min(app.store.state.query, answer.ids.length - 1);
      const found = (await app.source.model?.alternatives(position)) ?? [];
      fill(place, el("h2", {}, say("otherWords")), found.map((/** @type {any} */ one) => choice(one.text, one.probability, one.ids, labelOf(one.token))));
    },
  }, say("otherWords"));
  const given = asked.target !== undefined;
  const own = given ? el("button.quiet", { onclick: () => live.ask({ ...asked, target: undefined }) }, say("ownAnswer")) : "";
  const list = (answer.alternatives ?? []).map((/** @type {any} */ one) => choice(one.text, one.score, one.ids));
  return [list.length ? el("h2", {}, say("alternatives")) : "", ...list, el("span.gap"), own, more];
}

/** Tokens that a language model writes at most. */
const MAX_NEW_TOKENS = 40;

/**
 * The controls with which a language model continues its text, sampled at a temperature.
 * @param {App} app
 * @param {Live} live
 */
function writing(app, live) {
  const { say, store } = app;
  const told = el("span.written", { "aria-live": "polite" });
  /** @type {AbortController | null} */
  let going = null;
  let turn = 0; // another seed each time
  const slider = el("input", { type: "range", min: 0, max: 2, step: 0.05, value: store.state.sampling, "aria-label": say("sampling"), oninput: () => heat(Number(slider.value)) });
  const number = el("output.digits");
  const show = (/** @type {number} */ heat) => fill(number, short(heat, 2));
  const heat = (/** @type {number} */ value) => {
    show(value);
    store.set({ sampling: value });
  };
  show(store.state.sampling);
  const write = async () => {
    const { model, text } = /** @type {import("../http.js").Ask} */ (live.asked);
    going?.abort();
    const mine = (going = new AbortController());
    const asked = { model, text, max_tokens: MAX_NEW_TOKENS, temperature: Number(slider.value), seed: turn++ };
    fill(told, say("doing_writing"));
    try {
      const found = await askFor("/api/generate", asked, { signal: mine.signal, tell: (progress) => fill(told, progress.text ?? "") });
      const go = el("button.quiet", { onclick: () => live.ask({ model, text: found.text }) }, say("lookInside"));
      fill(told, el("b", {}, found.written), " ", go);
    } catch (error) {
      if (!mine.signal.aborted) fill(told, el("span.fault", {}, /** @type {Error} */ (error).message));
    }
  };
  return [
    el("button.quiet.write", { onclick: write }, say("writeOn")),
    el("label.slider", { title: say("samplingHelp") }, say("sampling"), " ", slider, " ", number),
    told,
  ];
}
