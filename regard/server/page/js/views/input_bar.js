// The input bar of the live page: model, input, examples, alternatives.

import { el, fill } from "../dom.js";
import { short } from "../format.js";
import { sendImage, streamRequest } from "../http.js";
import { labelOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../live.js").Live} Live
 */

/** @type {Record<string, import("../messages.js").MessageKey>} */
export const PROGRESS_MESSAGES = { waiting: "progress_waiting", loading: "progress_loading", writing: "progress_writing", tracing: "progress_tracing" };

/**
 * @param {App} app
 * @param {Live} live
 * @returns {import("../app.js").Pane}
 */
export function inputBar(app, live) {
  const line = el("div.line");
  const others = el("div.others");
  const status = el("p.status", { role: "status", "aria-live": "polite" });
  const element = el("section.input-bar", { "aria-label": app.t("input") }, line, status, others);
  const showStatus = () => fill(status, statusOf(app, live));
  app.root.addEventListener("regard-status", () => (element.isConnected ? showStatus() : undefined));
  let shown = /** @type {any} */ (null);
  return {
    element,
    update: (changed) => {
      element.hidden = app.store.state.page !== "explore" && live.models.length > 0;
      if (changed.has("all")) fill(line, live.models.length ? controls(app, live) : app.t("noModel"));
      if (changed.has("all") || shown !== app.source) fill(others, alternatives(app, live, others));
      shown = app.source;
      showStatus();
    },
  };
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
  const send = async (/** @type {File | undefined} */ file) => {
    if (!file) return;
    try {
      live.run({ model: about.name, image: await sendImage(file) });
    } catch (error) {
      app.root.dispatchEvent(new CustomEvent("regard-error", { detail: error }));
    }
  };
  const field = el("input.visually-hidden", { type: "file", accept: "image/*", onchange: () => send(field.files[0]) });
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    send(event.dataTransfer?.files[0]);
  };
  return el("label.drop", { ondragover: (/** @type {Event} */ event) => event.preventDefault(), ondrop: drop }, app.t("chooseImage"), field);
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
 */
function requestExample(live, about, i) {
  const one = about.examples[i];
  if (one) live.run({ model: about.name, text: one.text, image: one.image, target: one.target });
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
  const { doing, done, of } = live.progress;
  const count = of ? ` ${done}/${of}` : "";
  return [t(PROGRESS_MESSAGES[doing] ?? "loading"), count, " ", el("button.quiet", { onclick: () => live.stop() }, t("stop"))];
}

/**
 * Return the other translations of the beam, and a button for other words at the selected position.
 * @param {App} app
 * @param {Live} live
 * @param {HTMLElement} place
 */
function alternatives(app, live, place) {
  const { t, about } = app;
  const answer = /** @type {any} */ (about).answer;
  const { request } = live;
  if (answer?.kind === "next" && request?.text) return writing(app, live);
  if (answer?.kind !== "translation" || !request) return "";
  const choice = (/** @type {string} */ text, /** @type {number} */ number, /** @type {number[]} */ ids, lead = "") =>
    el("button.other", { onclick: () => live.run({ ...request, target: ids }) }, lead ? el("b", {}, lead) : "", " ", text, " ", el("span.digits", {}, short(number)));
  const more = el("button.quiet.words", {
    onclick: async () => {
      const position = Math.min(app.store.state.query, answer.ids.length - 1);
      const found = (await app.source.model?.alternatives(position)) ?? [];
      fill(place, el("h2", {}, t("otherWords")), found.map((/** @type {any} */ one) => choice(one.text, one.probability, one.ids, labelOf(one.token))));
    },
  }, t("otherWords"));
  const given = request.target !== undefined;
  const own = given ? el("button.quiet", { onclick: () => live.run({ ...request, target: undefined }) }, t("modelAnswer")) : "";
  const list = (answer.alternatives ?? []).map((/** @type {any} */ one) => choice(one.text, one.score, one.ids));
  const parts = /** @type {{ source: string }[]} */ (answer.parts ?? []);
  const chooser = el("select.parts", { "aria-label": t("textPart"), onchange: () => live.run({ ...request, part: Number(chooser.value) }) },
    parts.map((one, i) => el("option", { value: i, selected: i === (request.part ?? 0) }, `${i + 1}/${parts.length} ${one.source}`)));
  return [parts.length > 1 ? chooser : "", list.length ? el("h2", {}, t("alternatives")) : "", ...list, el("span.gap"), own, more];
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
  const status = el("span.written", { "aria-live": "polite" });
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
      fill(status, el("b", {}, found.written), " ", go);
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
