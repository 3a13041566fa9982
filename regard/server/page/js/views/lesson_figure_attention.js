// Figures of attention: Bahdanau's six steps with their numbers, and one query in all heads at once.

import { computeRow, contextOf } from "../head.js";
import { flowSide, siteLike, tablesAt, ticksOfSite, vectorAt } from "../course/parts.js";
import { el, shape } from "../dom.js";
import { full, probability, short } from "../format.js";
import { formula, sum, v } from "../formula.js";
import { largest, row } from "../matrix.js";
import { labelOf } from "../tokens.js";
import { drawStrip } from "./step_parts.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("./lesson_figures.js").FigureContext} FigureContext
 */

/**
 * The six steps of additive attention at one token of the answer.
 * @param {App} app
 * @param {FigureContext} context
 */
export async function bahdanau(app, { width }) {
  const { t } = app;
  const site = siteLike(app, /cross$/);
  const { rows, columns } = ticksOfSite(app, site);
  const query = Math.min(app.store.state.query, site.n_query - 1);
  const vectors = await app.source.vectors(site.path, 0);
  const tables = computeRow(site, 0, vectors, query);
  const context = contextOf(tables, vectors, query, false);
  const found = await flowSide(app, "decoder");
  const recurrent = found?.side.stations.findLast(({ kind }) => kind === "recurrent");
  const state = recurrent ? await vectorAt(app, recurrent.path, query) : null;
  const next = found?.rows.predictions?.[query]?.slice(0, 3) ?? [];
  const wide = Math.max(120, Math.min(460, width - 200));
  const strip = (/** @type {ArrayLike<number>} */ values, /** @type {string} */ role, /** @type {string} */ label) => drawStrip({ values, role, label, height: 26 }, wide).element;
  const step = (/** @type {number} */ n, /** @type {Node} */ math, /** @type {import("../dom.js").Child[]} */ body) =>
    el("li", { "data-six": n, "data-part": n % 2 ? `${n}${n + 1}` : "" }, el("div.what", {}, el("b", {}, t(/** @type {any} */ (`figureB${n}`))), math), el("div.numbers", {}, body));
  const keys = keyTable(columns, tables);
  return {
    title: t("figureBahdanau", { token: rows[query].label }),
    body: el("ol.six", {}, [
      step(1, formula("h_1 … h_n", v("h", "1"), " … ", v("h", String(site.n_key))), [el("div.states", {}, columns.map((tick, j) => el("span.state", {}, drawStrip({ values: row(vectors.key, j), role: "key", label: `${tick.label}: ${site.d_k}`, height: 30 }, Math.max(14, Math.floor((width - 150) / columns.length) - 6)).element, el("span", {}, tick.label))))]),
      step(2, formula("s_(t−1)", v("s", "t−1")), [strip(row(vectors.query, query), "query", t("figureB2"))]),
      step(3, formula("e_j = v · tanh(W_q s + W_k h_j)", v("e", "j"), " = ", v("v"), " · tanh(", v("W", "q"), v("s", "t−1"), " + ", v("W", "k"), v("h", "j"), ")"), [keys.scores]),
      step(4, formula("α = softmax(e)", v("α", "j"), " = softmax(", v("e"), ")"), [keys.weights]),
      step(5, formula("c = Σ α_j h_j", v("c"), " = ", sum("j"), v("α", "j"), v("h", "j")), [strip(context, "value", t("figureB5"))]),
      step(6, formula("s_t", v("s", "t")), [state ? strip(state, "weight", t("figureB6")) : "", el("span.candidates", {}, next.map(({ name, probability: p }) => el("span.candidate", {}, labelOf(name), " ", el("span.digits", { "data-value": p }, probability(p)))))]),
    ]),
  };
}

/**
 * The scores and weights of a query over the keys, as rows of numbers.
 * @param {import("../tokens.js").Tick[]} columns
 * @param {import("../head.js").Tables} tables
 */
function keyTable(columns, tables) {
  const cells = (/** @type {Float32Array} */ data, /** @type {string} */ name) => {
    const most = Math.max(1e-9, largest(data.map(Math.abs)));
    return el("div.cells", { "data-cells": name }, columns.map(({ label }, j) =>
      el("span.cell", { title: `${label}: ${full(data[j])}`, "data-value": data[j], style: { "--share": name === "weights" ? (data[j] / most).toFixed(3) : "0" } }, el("span", {}, label), el("span.digits", {}, short(data[j], 2)))));
  };
  return { scores: tables.scores ? cells(tables.scores.data, "scores") : el("span"), weights: cells(tables.weights.data, "weights") };
}

/**
 * One query in all heads of all layers: a row of circles for each head.
 * @param {App} app
 * @param {FigureContext} context
 */
export async function heads(app, { width, height }) {
  const { t, store } = app;
  const open = app.sites.find((one) => one.path === store.state.site) ?? app.open.site;
  const sites = app.sites.filter((one) => one.group === open.group);
  const { rows, columns } = ticksOfSite(app, open);
  const query = Math.min(store.state.query, rows.length - 1);
  const list = sites.flatMap((site) => Array.from({ length: site.n_heads }, (_, head) => ({ site, head })));
  const tables = await Promise.all(list.map(({ site, head }) => tablesAt(app, site, head, query)));
  const left = 64;
  const cell = Math.max(14, Math.min(34, (width - left - 10) / columns.length));
  const slope = cell < 20 ? 70 : 45; // steep where labels are close to each other
  const longest = Math.max(...columns.map((tick) => tick.label.length));
  const top = Math.min(110, 18 + 7.5 * longest * Math.sin((slope * Math.PI) / 180));
  const tall = Math.max(18, Math.min(30, (height - top - 10) / list.length));
  const radius = Math.min(cell, tall) / 2 - 1;
  const labels = columns.map((tick, j) => shape(`text.tick.key${tick.special ? ".special" : ""}`, { transform: `translate(${left + cell * (j + 0.5)},${top - 8}) rotate(${-slope})` }, tick.label));
  const lines = list.map(({ site, head }, i) => {
    const chosen = site.path === store.state.site && head === store.state.head;
    const name = site.layer === null ? t("headName", { head }) : t("layerHead", { layer: site.layer, head });
    const weights = tables[i].weights.data;
    const choose = () => store.set({ site: site.path, head, key: weights.indexOf(largest(weights)) });
    const onkeydown = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      choose();
    };
    const y = top + tall * (i + 0.5);
    return shape(`g.head-row${chosen ? ".chosen" : ""}${head === 0 ? ".first" : ""}`, { role: "button", tabindex: 0, "aria-pressed": String(chosen), "aria-label": `${name}: ${columns[weights.indexOf(largest(weights))].label} ${short(largest(weights))}`, "data-row": `${site.path} ${head}`, onclick: choose, onkeydown },
      shape("rect.hit", { x: 0, y: top + tall * i, width: left + cell * columns.length, height: tall }),
      head === 0 ? shape("path.hairlines", { d: `M0 ${top + tall * i}H${left + cell * columns.length}` }) : null,
      shape("text.number", { x: left - 8, y: y + 4, "text-anchor": "end" }, site.layer === null ? String(head) : `L${site.layer} H${head}`),
      Array.from(weights, (w, j) => shape("circle.weights", { cx: left + cell * (j + 0.5), cy: y, r: (radius * Math.sqrt(w)).toFixed(2), "data-value": w }, shape("title", {}, `${columns[j].label}: ${full(w)}`))));
  });
  const picture = shape("svg.all-heads", { width: left + cell * columns.length + 40, height: top + tall * list.length + 6 }, labels, lines);
  return { title: t("figureHeads", { token: rows[query].label }), body: el("div.scrolled", {}, picture) };
}
