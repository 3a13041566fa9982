// Figures of tokens and vectors: pieces of words, embeddings and their cosines, layer normalization.

import { cosine, meanAndDeviation, siteLike, ticksOfSite, vectorAt, vectorsOf, wordsOf } from "../course/parts.js";
import { el } from "../dom.js";
import { full, short } from "../format.js";
import { largestSize } from "../matrix.js";
import { labelOf } from "../tokens.js";
import { drawStrip } from "./step_parts.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("./lesson_figures.js").FigureContext} FigureContext
 */

const ENCODER = /^encoder\.layers\.\d+\.self$/;

/**
 * Words in frames, with their pieces inside; and a field for the reader's own text.
 * @param {App} app
 */
export async function pieces(app) {
  const { t, about } = app;
  const tokens = about.tokens.source ?? [];
  const words = wordsOf(app, "source").map(({ pieces: list, special }) =>
    el(`span.word${special ? ".special" : ""}${list.length > 1 ? ".cut" : ""}`, {}, list.map((i, n) => el("span.piece", {}, el("span", {}, labelOf(tokens[i], n > 0)), el("span.small.digits", {}, String(i))))));
  const field = el("input.own-text", { type: "text", "aria-label": t("figureOwnText"), placeholder: t("typeText"), autocomplete: "off" });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (text) app.root.dispatchEvent(new CustomEvent("regard-request", { detail: { text, target: undefined } }));
  };
  return { title: t("figurePieces"), body: [el("div.words", {}, words), el("form.own", { onsubmit: submit }, field, el("button.run", { type: "submit" }, t("figureCut")))] };
}

/**
 * One strip for each token, and its cosine with the selected one.
 * @param {App} app
 * @param {FigureContext} context
 */
export async function embeddings(app, { width, report }) {
  const { t, store } = app;
  const ticks = ticksOfSite(app, siteLike(app, ENCODER)).rows;
  const vectors = await vectorsOf(app, "encoder.embedding.tokens", ticks.length);
  const query = Math.min(store.state.query, ticks.length - 1);
  const key = Math.min(store.state.key, ticks.length - 1);
  const cosines = vectors.map((vector) => cosine(vectors[query], vector));
  const most = vectors.map((vector) => largestSize(vector)).sort((a, b) => a - b)[vectors.length >> 1]; // one large number must not flatten all others
  const wide = Math.max(90, Math.min(560, width - 230));
  const rows = ticks.map(({ label }, i) => {
    const strip = drawStrip({ values: vectors[i], role: "positive", label: `${label}: ${vectors[i].length}`, most, height: 24 }, wide).element;
    const x = cosines[i];
    return el(`div.embedding${i === query ? ".asks" : ""}${i === key ? ".answers" : ""}`, {},
      el("button.name", { title: t("figureReference", { token: label }), "aria-pressed": String(i === query), "data-token": i, onclick: () => store.set({ query: i }) }, label), strip,
      el("button.cosine", { title: full(x), "aria-label": `${t("figurePair", { a: ticks[query].label, b: label })}: ${short(x)}`, "aria-pressed": String(i === key), "data-pair": i, "data-value": x, onclick: () => store.set({ key: i }) },
        el("span.track", {}, el(`span.bar${x < 0 ? ".under" : ""}`, { style: { width: `${(50 * Math.abs(x)).toFixed(1)}%` } })), el("span.digits", {}, short(x))));
  });
  report({ cosine: cosines[key] });
  return { title: t("figureEmbeddings", { token: ticks[query].label }), body: el("div.embeddings", {}, rows) };
}

/**
 * The vector of a token before and after the norm in front of the first attention.
 * @param {App} app
 * @param {FigureContext} context
 */
export async function norm(app, { width }) {
  const { t } = app;
  const site = siteLike(app, ENCODER);
  const ticks = ticksOfSite(app, site).rows;
  const at = Math.min(app.store.state.query, ticks.length - 1);
  const both = await Promise.all([vectorAt(app, "encoder.embedding.output", at), vectorAt(app, `${site.path}.input`, at)]);
  const most = Math.max(...both.map((vector) => largestSize(vector)));
  const rows = both.map((values, i) => {
    const { mean, deviation } = meanAndDeviation(values);
    return el("div.normed", {}, el("b", {}, t(i ? "after" : "before")), drawStrip({ values, role: "positive", label: t(i ? "after" : "before"), most, height: 110 }, Math.min(760, width)).element,
      el("p.digits", {}, el("span", { "data-value": mean, title: full(mean) }, t("figureMean", { x: short(mean) })), " · ", el("span", { "data-value": deviation, title: full(deviation) }, t("figureStd", { x: short(deviation) }))));
  });
  return { title: t("figureNorm", { token: ticks[at].label }), body: rows };
}
