// The input bar of the live page, part of the header: model, input, examples, progress. Next to the
// answer are its alternatives, in one line with a popover.

import { el, fill } from "../dom.js";
import { probability as shortProbability, short } from "../format.js";
import { streamRequest } from "../http.js";
import { showImage } from "../image_upload.js";
import { oneTabStop, rove } from "../radio_group.js";
import { labelOf } from "../tokens.js";
import { toggleDrawingPad } from "./drawing_pad.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../live.js").Live} Live
 */

/** @type {Record<string, import("../messages.js").MessageKey>} */
export const PROGRESS_MESSAGES = { waiting: "progress_waiting", loading: "progress_loading", writing: "progress_writing", tracing: "progress_tracing" };

/**
 * @param {App} app
 * @param {Live} live
 * @returns {import("./layout.js").HeaderPane}
 */
export function inputBar(app, live) {
  const line = el("div.line");
  const others = el("div.others");
  const intro = el("div.intro");
  const status = el("p.status", { "data-says": "" });
  const element = el("section.input-bar", { "aria-label": app.t("input") }, line, status);
  const showStatus = () => {
    if (live.error && offered !== live.request?.model) offer(); // another model was chosen, and refused its input
    fill(status, statusOf(app, live));
  };
  app.root.addEventListener("regard-status", () => (element.isConnected ? showStatus() : undefined));
  let shown = /** @type {any} */ (null);
  let place = "";
  let offered = ""; // the model whose controls are shown
  const offer = () => {
    offered = live.request?.model ?? "";
    fill(line, live.models.length ? controls(app, live) : app.t("noModel"));
    fill(intro, introduction(app, live));
  };
  return {
    element,
    aside: others,
    intro,
    update: (changed) => {
      if (changed.has("all")) offer();
      const now = `${app.open.site.path} ${app.store.state.query} ${app.store.state.key}`;
      if (changed.has("all") || shown !== app.source) fill(others, alternatives(app, live));
      else if (now !== place) others.querySelector(".alternatives[open]")?.dispatchEvent(new Event("toggle")); // other words of another position
      shown = app.source;
      place = now;
      showStatus();
    },
  };
}

/** The models whose languages the introduction can name. */
const INTRODUCED = ["en-de", "en-ko", "dates", "dates-transformer"];

/**
 * Return one sentence on what the model does and what to click, and examples of what to look for.
 * @param {App} app
 * @param {Live} live
 */
function introduction({ t }, live) {
  const about = live.models.find((one) => one.name === live.request?.model);
  if (!about) return "";
  const name = INTRODUCED.includes(about.name) ? about.name.replace(/-transformer$/, "").replace("-", "_") : about.reads === "image" ? "image" : about.task;
  const chips = about.examples
    .map((/** @type {any} */ one, /** @type {number} */ i) => ({ ...one, i }))
    .filter((/** @type {any} */ one) => one.shows)
    .map((/** @type {any} */ one) => el("button.chip", { title: one.text, onclick: () => requestExample(live, about, one.i, true) }, t(/** @type {any} */ (`shows_${one.shows}`))));
  oneTabStop(chips);
  return [el("p", {}, t(/** @type {any} */ (`intro_${name}`))), chips.length ? rove(el("div.chips", { role: "group", "aria-label": t("examples") }, chips), ".chip") : ""];
}

/**
 * @param {App} app
 * @param {Live} live
 */
function controls(app, live) {
  const { t } = app;
  const request = live.request ?? { model: live.models[0].name };
  const about = live.models.find((one) => one.name === request.model);
  const models = el("select.models", { "aria-label": t("model"), onchange: () => requestFirstExample(live, models.value) },
    live.models.map((one) => el("option", { value: one.name, selected: one.name === request.model }, one.name)));
  const examples = el("select.examples", { "aria-label": t("examples"), onchange: () => requestExample(live, about, Number(examples.value)) },
    el("option", { value: -1 }, t("examples")),
    about.examples.map((/** @type {any} */ one, /** @type {number} */ i) => el("option", { value: i }, one.text ?? one.name)));
  return [models, about.reads === "image" ? imageField(app, live, about) : textField(app, live), about.examples.length ? examples : ""];
}

/**
 * @param {App} app
 * @param {Live} live
 */
function textField(app, live) {
  const { t } = app;
  const own = live.request?.text ?? "";
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = field.value;
    if (text.trim() && live.request) live.run({ model: live.request.model, text: app.about.family === "decoder" ? text : text.trim(), beam: live.request.beam });
  };
  const onkeydown = (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && submit(event);
  const field = el("textarea.text", { rows: Math.min(3, own.trimEnd().split("\n").length), "aria-label": t("typeText"), placeholder: t("typeText"), value: own, autocomplete: "off", spellcheck: "false", onkeydown });
  return el("form.type", { onsubmit: submit }, field, el("button.run", { type: "submit" }, t("run")));
}

/**
 * @param {App} app
 * @param {Live} live
 * @param {any} about
 */
function imageField(app, live, about) {
  const field = el("input.visually-hidden", { type: "file", accept: "image/*", onchange: () => showImage(app, live, field.files[0]) });
  return el("div.own-image", {}, el("label.drop", {}, app.t("chooseImage"), field), el("button.run.draw", { onclick: () => toggleDrawingPad(app, (drawn) => showImage(app, live, drawn, true)) }, app.t("draw")));
}

/**
 * @param {Live} live
 * @param {string} name
 */
function requestFirstExample(live, name) {
  const about = live.models.find((one) => one.name === name);
  if (about.examples.length) requestExample(live, about, 0);
}

/**
 * @param {Live} live
 * @param {any} about
 * @param {number} i
 * @param {boolean} [example] whether it is opened for the connection that it shows
 */
function requestExample(live, about, i, example = false) {
  const one = about.examples[i];
  if (one) live.run({ model: about.name, text: one.text ?? undefined, image: one.image ?? undefined, target: one.target ?? undefined }, { example });
}

/**
 * Return the progress of the running request, or the error of the last one.
 * @param {App} app
 * @param {Live} live
 */
function statusOf(app, live) {
  const { t } = app;
  if (live.error) return el("span.error", {}, t.error(live.error));
  if (!live.progress) return "";
  return [...progressOf(t, live.progress), el("button.quiet", { onclick: () => live.stop() }, t("stop"))];
}

/**
 * Return a progress bar with its count, for example "writing … 12/38".
 * @param {App["t"]} t
 * @param {import("../http.js").Progress} progress
 */
export function progressOf(t, { doing, done, of }) {
  const bar = el("progress", of ? { max: of, value: done, "aria-label": t("progress") } : { "aria-label": t("progress") });
  if (of) bar.setAttribute("value", String(done));
  return [bar, el("span", {}, t(PROGRESS_MESSAGES[doing] ?? "loading"), of ? ` ${done}/${of}` : done > 1 ? ` ${done}` : "")];
}

/**
 * Return the other translations of the beam and other words at the selected position, as one line
 * that opens a list; for a language model, the controls that continue its text.
 * @param {App} app
 * @param {Live} live
 */
function alternatives(app, live) {
  const { t, about } = app;
  const answer = /** @type {any} */ (about).answer;
  const { request } = live;
  if (answer?.kind === "next" && request?.text) return writing(app, live);
  if (answer?.kind !== "translation" || !request) return "";
  const choice = (/** @type {string} */ text, /** @type {string} */ number, /** @type {number[]} */ ids, lead = "") =>
    el("button.other", { onclick: () => live.run({ ...request, target: ids }) }, lead ? el("b", {}, lead) : "", el("span", {}, text), el("span.digits", {}, number));
  const given = Boolean(request.target);
  const own = given ? el("button.quiet.own", { onclick: () => live.run({ ...request, target: undefined }) }, t("modelAnswer")) : "";
  const found = /** @type {any[]} */ (answer.alternatives ?? []);
  const list = found.map((one) => choice(one.text, short(one.score), one.ids));
  const words = el("div.other-words");
  let wanted = -1;
  const loadWords = async () => {
    if (!details.open) return;
    const position = (wanted = positionOf(app, answer.ids.length));
    const others = (await app.source.model?.alternatives(position).catch(() => [])) ?? [];
    if (position !== wanted) return; // another position was chosen meanwhile
    const token = labelOf(answer.tokens[position]?.text ?? "");
    fill(words, heading(t("otherWordsFor", { token }), t("probability")), others.map((one) => choice(one.text, shortProbability(one.probability), one.ids, labelOf(one.token))));
  };
  const summary = el("summary", { title: t("alternatives") }, el("h2", {}, t("alternatives")), el("span.preview", {}, found[0]?.text ?? t("otherWords")), el("span", { "aria-hidden": "true" }, "▾"));
  const details = el("details.menu.alternatives", { ontoggle: loadWords }, summary,
    el("div.items", {}, list.length ? heading(t("alternatives"), t("logScore")) : "", list, words, spokeOf(app, answer)));
  return [partChooser(app, live), own, details];
}

/**
 * Say which engine found the answer, and mark the tokens that float32 would have chosen otherwise.
 * @param {App} app
 * @param {any} answer
 */
function spokeOf({ t }, { engine, precision, differs, tokens }) {
  if (!engine) return "";
  const marked = /** @type {number[]} */ (differs ?? []).map((i) => labelOf(tokens[i]?.text ?? ""));
  return el("p.note.engine", {}, t("spoke", { engine, precision }), marked.length ? t("spokeDiffers", { tokens: marked.join(", ") }) : "");
}

/**
 * Return the position in the answer that is selected, also where the queries are those of the input.
 * @param {App} app
 * @param {number} length of the answer
 */
function positionOf({ open, store: { state } }, length) {
  const position = open.site.asks === "target" ? state.query : open.site.answers === "target" ? state.key : 0;
  return Math.min(position, length - 1);
}

/**
 * A title of a list and the meaning of its numbers.
 * @param {string} title
 * @param {string} unit
 */
function heading(title, unit) {
  return el("div.heading", {}, el("h3", {}, title), el("span.small", {}, unit));
}

/**
 * A list of the parts of a text that is translated in several parts.
 * @param {App} app
 * @param {Live} live
 */
function partChooser({ t, about }, live) {
  const parts = /** @type {{ source: string }[]} */ (/** @type {any} */ (about).answer.parts ?? []);
  const request = /** @type {import("../http.js").TraceRequest} */ (live.request);
  if (parts.length < 2) return "";
  const chooser = el("select.parts", { "aria-label": t("textPart"), onchange: () => live.run({ ...request, part: Number(chooser.value) }) },
    parts.map((one, i) => el("option", { value: i, selected: i === (request.part ?? 0) }, `${i + 1}/${parts.length} ${one.source}`)));
  return el("label.part", {}, el("h2", {}, t("textPart")), chooser);
}

/** The largest number of tokens that a language model adds to its text. */
const MAX_NEW_TOKENS = 40;

/**
 * The controls with which a language model continues its text, sampled at a temperature.
 * @param {App} app
 * @param {Live} live
 */
function writing(app, live) {
  const { t, store } = app;
  const status = el("span.written");
  /** @type {AbortController | null} */
  let pending = null;
  let seed = 0; // a new one each time
  const slider = el("input", { type: "range", min: 0, max: 2, step: 0.05, value: store.state.sampling, "aria-label": t("sampling"), oninput: () => setTemperature(Number(slider.value)) });
  const number = el("output.digits");
  const show = (/** @type {number} */ value) => fill(number, short(value, 2));
  const setTemperature = (/** @type {number} */ value) => {
    show(value);
    store.set({ sampling: value });
  };
  show(store.state.sampling);
  const write = async () => {
    const { model, text } = /** @type {import("../http.js").TraceRequest} */ (live.request);
    pending?.abort();
    const mine = (pending = new AbortController());
    const request = { model, text, max_tokens: MAX_NEW_TOKENS, temperature: Number(slider.value), seed: seed++ };
    fill(status, t("progress_writing"));
    try {
      const found = await streamRequest("/api/generate", request, { signal: mine.signal, onProgress: (progress) => fill(status, progress.text ?? "") });
      const go = el("button.quiet", { onclick: () => live.run({ model, text: found.text }) }, t("traceText"));
      fill(status, el("b", {}, found.written), " ", el("span.small", { title: t("sameEngine") }, t("drawnBy", { seed: request.seed })), " ", go);
    } catch (error) {
      if (!mine.signal.aborted) fill(status, el("span.error", {}, t.error(error)));
    }
  };
  return [
    el("button.quiet.continue", { onclick: write }, t("continueText")),
    el("label.slider", { title: t("samplingHelp") }, t("sampling"), " ", slider, " ", number),
    status,
  ];
}
