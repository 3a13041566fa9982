// From weights to the residual stream: weighted values, all heads side by side, W_O, what is added.

import { el } from "../dom.js";
import { factor, full, short } from "../format.js";
import { formula, sum, v } from "../formula.js";
import { largestSize, project, row } from "../matrix.js";
import { largestTerms, line, linked, num, step } from "./step_parts.js";

/** @typedef {import("./steps.js").Way} Way */

const FEW = 4;
/** How much wider the names of values are than those of other strips. */
const NAMES = 46;

/**
 * Σ w · v.
 * @param {Way} way
 */
export function valueStep(way) {
  const { app, line: numbers, context, key } = way;
  const { say, open } = app;
  const weights = numbers.weights.data;
  const order = Array.from(weights.keys()).filter((j) => weights[j] > 0).sort((a, b) => weights[b] - weights[a]);
  const shown = order.slice(0, FEW);
  if (!shown.includes(key) && weights[key] > 0) shown.splice(shown.length - 1, 1, key);
  const value = (/** @type {number} */ j) => row(way.vectors.value, j);
  const most = Math.max(...shown.map((j) => largestSize(value(j))), 1e-9);
  const hidden = order.length - shown.length;
  const terms = (/** @type {number} */ i) => shown.map((j) => `${short(weights[j])}·${factor(value(j)[i])}`).join(" + ");
  const rest = numbers.off ? say("offContext") : say("valueRest", { n: order.length });
  const all = linked(way, rest, (i) => [v("z", String(i)), ` = ${terms(i)}${hidden ? " + …" : ""} = `, el("b", {}, full(context[i]))]);
  const rows = shown.map((j) =>
    el("div.line.value", {},
      el("span.name", {}, el("b.term.key", {}, open.columns[j].label), el("br"), num(weights[j], { from: "row", role: "weight" })),
      all.add({ values: value(j), role: "value", label: say("valueOf", { token: open.columns[j].label }), name: "values", most, height: 20 }, way.width - NAMES).element));
  return step("values", say("stepValues"), formula("z = Σ w v", v("z"), " = ", sum("j"), v("w", "j"), v("v", "j")),
    rows,
    hidden ? el("p.small", {}, say("moreKeys", { n: hidden, x: short(order.slice(shown.length).reduce((a, j) => a + weights[j], 0)) })) : "",
    el("div.line.total", {}, el("span.name", {}, v("z")), all.add({ values: context, role: "value", label: say("context"), name: "context", from: "values row" }, way.width - NAMES).element),
    all.where);
}

/**
 * The contexts of all heads side by side.
 * @param {Way} way
 */
export function joinStep(way) {
  const { app, streams } = way;
  const joined = joinedOf(way);
  if (!joined || !streams) return null;
  const { say, open } = app;
  const first = open.head * open.site.d_v;
  const all = linked(way, say("joinRest", { n: open.site.n_heads, d: joined.length }), (i) => [say("headName", { head: Math.floor(i / open.site.d_v) }), ":  ", v("z", String(i % open.site.d_v)), ` = ${full(joined[i])}`]);
  return step("join", say("stepJoin"), formula("Z = concat of all heads", v("Z"), " = [", v("z", "0"), "; ", v("z", "1"), "; …]"),
    line(v("Z"), all.add({ values: joined, role: "value", label: say("joined"), name: "joined", from: "context", part: [first, first + open.site.d_v] })), all.where);
}

/**
 * · W_O.
 * @param {Way} way
 */
export function outputStep(way) {
  const { app, streams } = way;
  const output = outputOf(way);
  const joined = joinedOf(way);
  if (!streams || (!output && !streams.output)) return null;
  const { say } = app;
  const name = formula("o = Z W_O", v("o"), " = ", v("Z"), v("W", "O"));
  if (!output) return step("output", say("stepOutput"), name, el("p.small", {}, say("noOutput")));
  const weights = streams.projections?.output;
  const explain = (/** @type {number} */ i) => {
    const left = [v("o", String(i)), " = "];
    if (!weights || !joined) return [...left, el("b", {}, full(output[i]))];
    const bias = weights.bias ? ` + ${factor(weights.bias[i])}` : "";
    return [...left, `${largestTerms(joined, row(weights.weight, i))}${bias} = `, el("b", {}, short(output[i]))];
  };
  const all = linked(way, say("outputRest", { d: output.length }), explain);
  return step("output", say("stepOutput"), name, line(v("o"), all.add({ values: output, role: "plain", label: say("stepOutput"), name: "output", from: "joined" })), all.where);
}

/**
 * What stood there before, plus what attention gives.
 * @param {Way} way
 */
export function residualStep(way) {
  const { app, streams } = way;
  const output = outputOf(way);
  if (!streams?.before || !output) return null;
  const { say, open } = app;
  const { before } = streams;
  const after = Float64Array.from(before, (x, i) => x + output[i]);
  const most = largestSize(after);
  const all = linked(way, say(open.site.norm_first === false ? "residualNorm" : "residualRest"), (i) => [v("x′", String(i)), ` = ${factor(before[i])} + ${factor(output[i])} = `, el("b", {}, full(after[i]))]);
  const add = (/** @type {string} */ letter, /** @type {ArrayLike<number>} */ values, /** @type {string} */ label, /** @type {string} */ from) =>
    line(v(letter), all.add({ values, role: "plain", label, name: label, from, most, height: 20 }));
  return step("residual", say("stepResidual"), formula("x′ = x + o", v("x′"), " = ", v("x"), " + ", v("o")),
    add("x", before, "before", ""), add("o", output, "added", "output"), add("x′", after, "after", "before added"), all.where);
}

/**
 * All heads' contexts; until the model has run with edits, only this head's is as it is after them.
 * @param {Way} way
 */
function joinedOf({ app, streams, context }) {
  if (!streams?.joined) return null;
  if (app.open.now) return streams.joined;
  const { head, site } = app.open;
  const made = Float64Array.from(streams.joined);
  made.set(context, head * site.d_v);
  return made;
}

/**
 * What attention gives, edits included; null where that cannot be computed here.
 * @param {Way} way
 * @returns {ArrayLike<number> | null}
 */
function outputOf(way) {
  const { streams, app } = way;
  if (!app.open.changes || app.open.now) return streams?.output ?? null;
  const joined = joinedOf(way);
  const weights = streams?.projections?.output;
  return joined && weights ? project(joined, weights.weight, weights.bias) : null;
}
