// Figures of the output: probabilities of the next token, sampling, greedy search and beams.

import { flowSide, nextTokens } from "../course/parts.js";
import { el, fill } from "../dom.js";
import { full, probability, short } from "../format.js";
import { requestJson, streamRequest } from "../http.js";
import { loadServed } from "../lessons.js";
import { SENTENCES } from "../lesson_messages.js";
import { labelOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("./lesson_figures.js").FigureContext} FigureContext
 */

/** Tokens that the model writes when the reader samples. */
const N_TOKENS = 40;

/**
 * Tokens with bars as long as their probabilities.
 * @param {import("../source.js").Candidate[]} list
 * @param {string} [chosen]
 */
function bars(list, chosen) {
  return el("div.chances", {}, list.map(({ name, probability: p }) =>
    el(`div.chance-row${chosen !== undefined && labelOf(name) === labelOf(chosen) ? ".chosen" : ""}`, {}, el("span.name", {}, labelOf(name)), el("span.track", {}, el("span.bar", { style: { width: `${(100 * p).toFixed(2)}%` } })), el("span.digits", { title: full(p), "data-value": p }, probability(p)))));
}

/**
 * The most probable tokens for a place of the answer.
 * @param {App} app
 */
export async function chances(app) {
  const { t, about, store } = app;
  const found = await flowSide(app, "decoder");
  const output = about.tokens.output ?? [];
  const at = Math.min(store.state.query, output.length - 1);
  const list = found?.rows.predictions?.[at] ?? [];
  const written = el("p.written-so-far", {}, el("span.small", {}, t("figureWritten"), " "), output.slice(0, at).map((token) => el("span.piece", {}, labelOf(token))), el("span.piece.here", {}, "?"));
  return { title: t("figureChances", { n: at }), body: [written, bars(list, output[at])] };
}

/**
 * The next token at a temperature, and text sampled with it.
 * @param {App} app
 * @param {FigureContext} context
 */
export async function sampling(app, { own, report }) {
  const { t, store, about } = app;
  const asked = /** @type {any} */ (about).asked ?? {};
  const temperature = store.state.sampling;
  const list = await nextTokens(app, temperature);
  const shown = el("output.digits", {}, short(temperature, 2));
  const slider = el("input", { type: "range", min: 0, max: 2, step: 0.05, value: temperature, "aria-label": t("sampling"), oninput: () => (shown.textContent = short(Number(slider.value), 2)), onchange: () => store.set({ sampling: Number(slider.value) }) });
  const text = el("p.sampled", { "data-says": "" }, own.sampled ? [el("span.small", {}, asked.text), el("b", {}, own.sampled)] : "");
  const write = async () => {
    const request = { model: asked.model, text: asked.text, max_tokens: N_TOKENS, temperature: Number(slider.value), seed: (own.seed = (own.seed ?? 0) + 1) };
    fill(text, t("progress_writing"));
    try {
      const found = await streamRequest("/api/generate", request, { onProgress: (progress) => fill(text, el("span.small", {}, asked.text), el("b", {}, progress.text ?? "")) });
      fill(text, el("span.small", {}, asked.text), el("b", {}, found.written));
      report({ sampled: found.written, temperature: request.temperature });
    } catch (error) {
      fill(text, el("span.error", {}, t.error(error)));
    }
  };
  return {
    title: t("figureSampling", { text: asked.text ?? "" }),
    body: [el("label.slider", { title: t("samplingHelp") }, t("sampling"), " ", slider, " ", shown), bars(list), el("p", {}, el("button.run.sample", { onclick: write }, t("figureSample"))), text],
  };
}

/** @type {Promise<any[][]> | null} the translations of each beam, found once */
let translated = null;
/** The widths of the beam that are compared. */
const BEAMS = [1, 4];

/**
 * Translations of one sentence by greedy search and by a beam.
 * @param {App} app
 */
export async function beams(app) {
  const { t } = app;
  const served = await loadServed(app);
  const model = ["en-de", "en-ko"].find((name) => served?.models.some((one) => one.name === name));
  const title = t("figureBeams", { text: SENTENCES.animal });
  if (!model) return { title, body: el("p.note", {}, t("figureNoTranslator")) };
  translated ??= Promise.all(BEAMS.map(async (beam) => {
    const [best] = (await requestJson("/api/translate", { model, texts: [SENTENCES.animal], beam, n_best: beam })).translations;
    return [best, ...best.alternatives];
  }));
  translated.catch(() => (translated = null));
  const found = await translated;
  const rows = found.flatMap((list, i) => list.map((one, n) =>
    el("tr", {}, n ? el("th") : el("th", { scope: "row" }, BEAMS[i] === 1 ? t("figureGreedy") : t("figureBeam", { n: BEAMS[i] })), el("td", {}, one.text), el("td.digits", { title: full(one.score), "data-value": one.score }, short(one.score)))));
  return { title, body: el("table.beams", {}, el("thead", {}, el("tr", {}, el("td"), el("td"), el("th", { scope: "col", title: t("logScore") }, t("figureScore")))), el("tbody", {}, rows)) };
}
