// Steps from weights to the residual stream: weighted sum, concatenation, W_O, addition.

import { el } from "../dom.js";
import { factor, full, short } from "../format.js";
import { formula, sum, v } from "../formula.js";
import { largestSize, project, row } from "../matrix.js";
import { MOVE, move, reducesMotion } from "../motion.js";
import { largestTerms, line, linked, number, step } from "./step_parts.js";

/** @typedef {import("./steps.js").StepContext} StepContext */

const MAX_VALUES = 4;
/** Milliseconds in which values shrink before the output grows. */
const STACK_DELAY = 100;
/** Additional width of the names of values, in pixels. */
const EXTRA_NAME_WIDTH = 46;

/**
 * Σ w · v.
 * @param {StepContext} at
 */
export function valueStep(at) {
  const { app, line: numbers, context, key } = at;
  const { t, open } = app;
  const weights = numbers.weights.data;
  const order = Array.from(weights.keys()).filter((j) => weights[j] > 0).sort((a, b) => weights[b] - weights[a]);
  const shown = order.slice(0, MAX_VALUES);
  if (!shown.includes(key) && weights[key] > 0) shown.splice(shown.length - 1, 1, key);
  const value = (/** @type {number} */ j) => row(at.vectors.value, j);
  const most = Math.max(...shown.map((j) => largestSize(value(j))), 1e-9);
  const hidden = order.length - shown.length;
  const terms = (/** @type {number} */ i) => shown.map((j) => `${short(weights[j])}·${factor(value(j)[i])}`).join(" + ");
  const rest = numbers.off ? t("headOffContext") : t("valuesHint", { n: order.length });
  const all = linked(at, rest, (i) => [v("z", String(i)), ` = ${terms(i)}${hidden ? " + …" : ""} = `, el("b", {}, full(context[i]))]);
  const rows = shown.map((j) =>
    el("div.line.value", { "data-weight": numbers.off ? 0 : weights[j] },
      el("span.name", {}, el("b.term.key", {}, open.columns[j].label), el("br"), number(weights[j], { from: "row", role: "weight" })),
      all.add({ values: value(j), role: "value", label: t("valueOf", { token: open.columns[j].label }), name: "values", most, height: 20 }, at.width - EXTRA_NAME_WIDTH).element));
  return step("values", t("stepValues"), formula("z = Σ w v", v("z"), " = ", sum("j"), v("w", "j"), v("v", "j")),
    rows,
    hidden ? el("p.small", {}, t("moreKeys", { n: hidden, x: short(order.slice(shown.length).reduce((a, j) => a + weights[j], 0)) })) : "",
    el("div.line.total", {}, el("span.name", {}, v("z")), all.add({ values: context, role: "value", label: t("context"), name: "context", from: "values row" }, at.width - EXTRA_NAME_WIDTH).element),
    all.where);
}

/**
 * Let the values shrink to their weights and stack into the output, once the step is in view.
 * @param {HTMLElement} body of the steps
 */
export function stackValues(body) {
  const section = body.querySelector('[data-step="values"]');
  const total = section?.querySelector(".line.total canvas");
  if (!section || !total || reducesMotion()) return;
  const watch = new IntersectionObserver(([entry]) => {
    if (!entry.isIntersecting) return;
    watch.disconnect();
    if (!section.isConnected) return;
    const end = total.getBoundingClientRect();
    for (const row of /** @type {NodeListOf<HTMLElement>} */ (section.querySelectorAll(".line.value"))) {
      const canvas = row.querySelector("canvas");
      if (canvas) fallOnto(canvas, end, Number(row.dataset.weight));
    }
    move(total, { transform: "scaleY(0)", opacity: 0 }, MOVE, STACK_DELAY);
  }, { threshold: 0.6 });
  watch.observe(section);
}

/**
 * Move a copy of a strip to the output; its height becomes its weight.
 * @param {HTMLCanvasElement} canvas
 * @param {DOMRect} end
 * @param {number} weight
 */
function fallOnto(canvas, end, weight) {
  const start = canvas.getBoundingClientRect();
  const place = /** @type {HTMLElement} */ (canvas.parentElement);
  const ghost = /** @type {HTMLCanvasElement} */ (canvas.cloneNode());
  ghost.getContext("2d")?.drawImage(canvas, 0, 0);
  ghost.className = "ghost-strip";
  ghost.setAttribute("aria-hidden", "true");
  ghost.style.left = `${canvas.offsetLeft}px`;
  ghost.style.top = `${canvas.offsetTop}px`;
  place.append(ghost);
  const down = end.top + end.height / 2 - start.top - start.height / 2;
  const frames = [{ transform: "none" }, { transform: `scaleY(${weight})`, offset: 0.45 }, { transform: `translateY(${down}px) scaleY(${weight})`, opacity: 0.4 }];
  move(ghost, frames, MOVE + STACK_DELAY).then(() => ghost.remove());
}

/**
 * Concatenate the context vectors of all heads.
 * @param {StepContext} at
 */
export function joinStep(at) {
  const { app, streams } = at;
  const joined = joinedOf(at);
  if (!joined || !streams) return null;
  const { t, open } = app;
  const first = open.head * open.site.d_v;
  const all = linked(at, t("joinHint", { n: open.site.n_heads, d: joined.length }), (i) => [t("headName", { head: Math.floor(i / open.site.d_v) }), ":  ", v("z", String(i % open.site.d_v)), ` = ${full(joined[i])}`]);
  return step("join", t("stepJoin"), formula("Z = [z_0; z_1; …]", v("Z"), " = [", v("z", "0"), "; ", v("z", "1"), "; …]"),
    line(v("Z"), all.add({ values: joined, role: "value", label: t("joined"), name: "joined", from: "context", part: [first, first + open.site.d_v] })), all.where);
}

/**
 * · W_O.
 * @param {StepContext} at
 */
export function outputStep(at) {
  const { app, streams } = at;
  const output = outputOf(at);
  const joined = joinedOf(at);
  if (!streams || (!output && !streams.output)) return null;
  const { t } = app;
  const name = formula("o = Z W_O", v("o"), " = ", v("Z"), v("W", "O"));
  if (!output) return step("output", t("stepOutput"), name, el("p.small", {}, t("noOutput")));
  const weights = streams.projections?.output;
  const explain = (/** @type {number} */ i) => {
    const left = [v("o", String(i)), " = "];
    if (!weights || !joined) return [...left, el("b", {}, full(output[i]))];
    const bias = weights.bias ? ` + ${factor(weights.bias[i])}` : "";
    return [...left, `${largestTerms(joined, row(weights.weight, i))}${bias} = `, el("b", {}, short(output[i]))];
  };
  const all = linked(at, t("outputHint", { d: output.length }), explain);
  return step("output", t("stepOutput"), name, line(v("o"), all.add({ values: output, role: "plain", label: t("stepOutput"), name: "output", from: "joined" })), all.where);
}

/**
 * Add the output of attention to the residual stream.
 * @param {StepContext} at
 */
export function residualStep(at) {
  const { app, streams } = at;
  const output = outputOf(at);
  if (!streams?.before || !output) return null;
  const { t, open } = app;
  const { before } = streams;
  const after = Float64Array.from(before, (x, i) => x + output[i]);
  const most = largestSize(after);
  const all = linked(at, t(open.site.norm_first === false ? "residualNormHint" : "residualHint"), (i) => [v("x′", String(i)), ` = ${factor(before[i])} + ${factor(output[i])} = `, el("b", {}, full(after[i]))]);
  const add = (/** @type {string} */ letter, /** @type {ArrayLike<number>} */ values, /** @type {string} */ label, /** @type {string} */ from) =>
    line(v(letter), all.add({ values, role: "plain", label, name: label, from, most, height: 20 }));
  return step("residual", t("stepResidual"), formula("x′ = x + o", v("x′"), " = ", v("x"), " + ", v("o")),
    add("x", before, "before", ""), add("o", output, "added", "output"), add("x′", after, "after", "before added"), all.where);
}

/**
 * Return all context vectors; until the model has run with edits, only this head's includes them.
 * @param {StepContext} at
 */
function joinedOf({ app, streams, context }) {
  if (!streams?.joined) return null;
  if (app.open.recomputed) return streams.joined;
  const { head, site } = app.open;
  const made = Float64Array.from(streams.joined);
  made.set(context, head * site.d_v);
  return made;
}

/**
 * Return the output of attention after edits; null if it cannot be computed here.
 * @param {StepContext} at
 * @returns {ArrayLike<number> | null}
 */
function outputOf(at) {
  const { streams, app } = at;
  if (!app.open.changes || app.open.recomputed) return streams?.output ?? null;
  const joined = joinedOf(at);
  const weights = streams?.projections?.output;
  return joined && weights ? project(joined, weights.weight, weights.bias) : null;
}
