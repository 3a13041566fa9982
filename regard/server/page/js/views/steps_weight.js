// Steps from two inputs to a weight: project, compare, scale, mask, softmax.

import { exponential } from "../attention.js";
import { el } from "../dom.js";
import { factor, full, short } from "../format.js";
import { e, formula, fraction, root, sum, v } from "../formula.js";
import { dot, largest, row } from "../matrix.js";
import { largestTerms, line, linked, number, step } from "./step_parts.js";

/** @typedef {import("./steps.js").StepContext} StepContext */

/**
 * x → W_Q → q, and x → W_K → k.
 * @param {StepContext} at
 */
export function inputStep(at) {
  const { app, query, key, streams, vectors } = at;
  const { t, open } = app;
  const [q, k] = [row(vectors.query, query), row(vectors.key, key)];
  if (streams && !streams.queryInput) return plainVectors(at, q, k);
  const [x, y] = [streams?.queryInput, streams?.keyInput];
  const known = streams?.projections ?? null;
  const turned = open.site.rotary ? ` ${t("rotary")}` : "";
  const rest = t(known || streams?.later ? "projectionHint" : streams ? "noProjections" : "loading", { n: x?.length ?? 0, d: q.length }) + turned;
  const explain = (/** @type {string} */ name, /** @type {ArrayLike<number> | undefined | null} */ input, /** @type {Float32Array} */ vector, /** @type {"query" | "key"} */ which) => (/** @type {number} */ i) => {
    const projection = known?.[which];
    const left = [v(name, String(i)), " = "];
    if (!projection || !input) return [...left, el("b", {}, full(vector[i]))];
    const bias = projection.bias ? ` + ${factor(projection.bias[i])}` : "";
    return [...left, `${largestTerms(input, row(projection.weight, i))}${bias} = `, el("b", {}, short(open.site.rotary ? dot(input, row(projection.weight, i)) + (projection.bias?.[i] ?? 0) : vector[i]))];
  };
  const asks = linked(at, rest, explain("q", x, q, "query"));
  const answers = linked(at, "", explain("k", y, k, "key"));
  const input = (/** @type {string} */ name, /** @type {Float32Array | null | undefined} */ values) =>
    values && line(v("x"), linked(at, "", () => []).add({ values, role: "plain", label: t("inputOf", { token: name }), name: `x-${name}`, height: 16 }));
  return step("input", t("stepInput"), formula("q = x W_Q, k = x W_K", v("q"), " = ", v("x"), v("W", "Q"), ",  ", v("k"), " = ", v("x"), v("W", "K")),
    el("div.pair", {}, el("b.term.query", {}, open.rows[query].label)),
    input("q", x) ?? "",
    line(v("q"), asks.add({ values: q, role: "query", label: t("queryVector"), name: "q", from: "x-q" })),
    el("div.pair", {}, el("b.term.key", {}, open.columns[key].label)),
    input("k", y) ?? "",
    line(v("k"), answers.add({ values: k, role: "key", label: t("keyVector"), name: "k", from: "x-k" })),
    asks.where, answers.where);
}

/**
 * Show queries and keys whose inputs are unknown, or that are inputs themselves.
 * @param {StepContext} at
 * @param {Float32Array} q
 * @param {Float32Array} k
 */
function plainVectors(at, q, k) {
  const { t, open } = at.app;
  const both = linked(at, t(open.site.left_out ? "inputsLeftOut" : "givenVectors"), (i) => [v("q", String(i)), ` = ${full(q[i])},  `, v("k", String(i)), ` = ${full(k[i] ?? NaN)}`]);
  return step("input", t("stepGiven"), formula("q, k", v("q"), ", ", v("k")),
    line(v("q"), both.add({ values: q, role: "query", label: t("queryVector"), name: "q" })),
    line(v("k"), both.add({ values: k, role: "key", label: t("keyVector"), name: "k" })), both.where, el("span.visually-hidden", {}, open.site.path));
}

/**
 * q · k, term by term.
 * @param {StepContext} at
 */
export function compareStep(at) {
  const { app, query, key, line: numbers, vectors } = at;
  const { t } = app;
  const compared = numbers.compared?.data[key];
  if (compared === undefined) return null;
  const [a, b] = [row(vectors.compareQuery ?? vectors.query, query), row(vectors.compareKey ?? vectors.key, key)];
  const weight = vectors.compareWeight;
  const terms = Float64Array.from(a, (x, i) => (weight ? weight[i] * Math.tanh(x + b[i]) : x * b[i]));
  const term = (/** @type {number} */ i) => (weight ? `${factor(weight[i])}·tanh(${short(a[i])} + ${factor(b[i])})` : `${factor(a[i])}·${factor(b[i])}`);
  const sums = [number(compared, { name: "compared", from: "terms" })];
  const first = Array.from({ length: Math.min(3, a.length) }, (_, i) => term(i)).join(" + ");
  const both = linked(at, [`${first}${a.length > 3 ? " + …" : ""} = `, ...sums], (i) => [v("q", String(i)), " ", v("k", String(i)), ` = ${term(i)} = `, el("b", {}, full(terms[i]))]);
  const { similarity } = app.open.site;
  const name = similarity in COMPARED ? formula(spokenOf(similarity), ...comparedBy(similarity)) : formula("q · k", ...comparedBy(similarity), " = ", sum("i"), v("q", "i"), v("k", "i"));
  const product = weight ? el("span.product", {}, v("v"), " tanh") : el("span.product", {}, v("q"), v("k"));
  return step("compare", t("stepCompare"), name,
    line(v("q"), both.add({ values: a, role: "query", label: t("queryVector"), height: 18 })),
    line(v("k"), both.add({ values: b, role: "key", label: t("keyVector"), height: 18 })),
    line(product, both.add({ values: terms, role: "positive", label: t("terms"), name: "terms", from: "q k" })),
    both.where, allTerms(app, a, b, terms));
}

/**
 * Similarities that are not dot products, spoken and written.
 * @type {Record<string, [string, () => import("../dom.js").Child[]]>}
 */
const COMPARED = {
  additive: ["v · tanh(W_Q q + W_K k)", () => [v("v"), " · tanh(", v("W", "Q"), v("q"), " + ", v("W", "K"), v("k"), ")"]],
  cosine: ["cos(q, k)", () => ["cos(", v("q"), ", ", v("k"), ")"]],
  general: ["q · W k", () => [v("q"), " · ", v("W"), v("k")]],
};

/** @param {string} similarity */
const spokenOf = (similarity) => COMPARED[similarity]?.[0] ?? "q·k";

/** @param {string} similarity */
const comparedBy = (similarity) => COMPARED[similarity]?.[1]() ?? [v("q"), " · ", v("k")];

/**
 * @param {import("../app.js").App} app
 * @param {Float32Array} a
 * @param {Float32Array} b
 * @param {Float64Array} terms
 */
function allTerms(app, a, b, terms) {
  const details = el("details", {
    ontoggle: () => {
      if (!details.open || details.querySelector("table")) return;
      let total = 0;
      const rows = Array.from(a, (x, i) => {
        total += terms[i];
        return el("tr", {}, [String(i), short(x), short(b[i]), short(terms[i]), short(total)].map((text) => el("td", {}, text)));
      });
      const head = ["i", "qᵢ", "kᵢ", "qᵢkᵢ", "Σ"].map((text) => el("th", {}, text));
      details.append(el("div.scroll", {}, el("table.terms", {}, el("tr", {}, head), rows)));
    },
  }, el("summary", {}, app.t("allTerms", { n: a.length })));
  return details;
}

/**
 * Return the formula of a score: what was compared, its scale if it has one, and the slope of ALiBi.
 * @param {StepContext} at
 * @param {boolean} divided
 */
function scoreFormula({ app, line: numbers }, divided) {
  const { similarity } = app.open.site;
  const d = app.open.vectors.key.columns;
  const byRoot = Math.abs(numbers.scale - d ** -0.5) < 1e-6;
  const slope = app.open.site.slopes?.[app.open.head] ? [" − ", v("m"), "|", v("i"), " − ", v("j"), "|"] : [];
  const spoken = `s = ${spokenOf(similarity)}${divided ? (byRoot ? " / √d_k" : ` / ${short(1 / numbers.scale)}`) : ""}${slope.length ? " − m |i − j|" : ""}`;
  const body = divided ? [fraction(comparedBy(similarity), byRoot ? root(v("d", "k")) : short(1 / numbers.scale))] : comparedBy(similarity);
  return formula(spoken, v("s"), " = ", ...body, ...slope);
}

/**
 * ÷ √d_k.
 * @param {StepContext} at
 */
export function scaleStep(at) {
  const { app, query, key, line: numbers, old } = at;
  const { t, open } = app;
  const [compared, score] = [numbers.compared?.data[key], numbers.scores?.data[key]];
  if (score === undefined) return null;
  const edited = open.changes?.scores.find((cell) => cell.query === query && cell.key === key);
  const result = number(score, { name: "score", from: "compared", was: old.scores?.data[key] });
  if (compared === undefined) return step("scale", t("stepScore"), formula("s", v("s")), el("p", {}, result));
  const d = open.vectors.key.columns;
  const root_ = numbers.scale === 1 ? "" : Math.abs(numbers.scale - d ** -0.5) < 1e-6 ? root(String(d)) : short(1 / numbers.scale);
  const slope = open.site.slopes?.[open.head];
  const away = Math.abs(query + open.site.n_key - open.site.n_query - key);
  const body = edited ? [el("b.edited", {}, t("setManually")), " ", result] : [number(compared, { from: "terms" }), root_ ? [" ÷ ", root_] : ` ${t("notScaled")}`, slope ? ` − ${short(slope)}·${away}` : "", " = ", result];
  return step("scale", t(root_ ? "stepScale" : "stepScore"), scoreFormula(at, root_ !== ""), el("p", {}, body.flat()));
}

/** @param {StepContext} at */
export function maskStep({ app, key, line: numbers, old }) {
  const { t } = app;
  const score = numbers.masked?.data[key];
  if (score === undefined) return null;
  const allowed = !numbers.allowed || numbers.allowed[key] === 1;
  const text = t(allowed ? "allowed" : "forbidden");
  return step("mask", t("stepMask"), formula(`−∞ ${t("whereMasked")}`, el("span.small", {}, maskName(app))),
    el("p", {}, el(`span.${allowed ? "yes" : "no"}`, {}, allowed ? "✓ " : "✕ ", text), " → ", number(score, { name: "masked", from: "score", was: old.masked?.data[key] })));
}

const features = (/** @type {string} */ name, /** @type {string} */ of, /** @type {string} */ index = "") => [v(name), "(", v(of, index || undefined), ")"];

/**
 * Forms of attention whose weights are not a softmax of scores: what they are instead.
 * @type {Record<string, [string, () => import("../dom.js").Child[]]>}
 */
const WITHOUT_SCORES = {
  efficient: ["w = ρ(q) · ρ(k)", () => [v("w"), " = ", ...features("ρ", "q"), " · ", ...features("ρ", "k")]],
  performer: ["w = φ(q)·φ(k) / Σ φ(q)·φ(k)", () => [v("w"), " = ", fraction([...features("φ", "q"), " · ", ...features("φ", "k")], [sum("j"), ...features("φ", "q"), " · ", ...features("φ", "k", "j")])]],
  linformer: ["w = softmax(q (E K)ᵀ / √d_k) E", () => [v("w"), " = softmax", "(", fraction([v("q"), "(", v("E"), v("K"), ")", el("sup", {}, "⊤")], root(v("d", "k"))), ") ", v("E")]],
};

/**
 * e^s over the sum of all e^s of the row.
 * @param {StepContext} at
 */
export function softmaxStep(at) {
  const { app, key, line: numbers, old } = at;
  const { t, open } = app;
  const weights = numbers.weights.data;
  const scores = numbers.masked?.data;
  const total = weights.reduce((a, b) => a + b, 0);
  const result = number(weights[key], { name: "weight", from: "masked row", was: old.weights.data[key] });
  const tail = [el("p", {}, t("rowSum", { n: weights.length }), " ", number(total, { from: "row" }))];
  const describeKey = (/** @type {number} */ j) => [el("b.term.key", {}, open.columns[j].label), ` ${full(weights[j])}`, scores ? `  (${t("score")} ${short(scores[j])})` : ""];
  const rest = scores ? softmaxNumbers(scores, key, numbers.temperature, result) : [result];
  const row_ = linked(at, rest.flat(), describeKey);
  const strip = row_.add({ values: weights, role: "weight", label: t("rowWeights"), name: "row", from: "masked", mark: key, height: 34 });
  const form = WITHOUT_SCORES[open.site.similarity];
  if (form) return step("softmax", t(/** @type {any} */ (`form_${open.site.similarity}`)), formula(form[0], ...form[1]()), line(v("w"), strip), row_.where, tail);
  const heat = () => (numbers.temperature === 1 ? [] : ["/", v("T")]); // a node can be in one place only
  const spoken = numbers.temperature === 1 ? "w = e^s / Σ e^s" : "w = e^(s/T) / Σ e^(s/T)";
  const name = formula(spoken, v("w"), " = ", fraction(e([v("s"), ...heat()]), [sum("j"), e([v("s", "j"), ...heat()])]));
  return step("softmax", t("stepSoftmax"), name, line(v("w"), strip), row_.where, tail);
}

/**
 * Return the terms of one softmax.
 * @param {Float32Array} scores
 * @param {number} key
 * @param {number} heat
 * @param {HTMLElement} result
 */
function softmaxNumbers(scores, key, heat, result) {
  const peak = largest(scores);
  if (scores[key] === -Infinity) return [e("−∞"), " = 0  →  ", result];
  if (heat === 0) return [v("T"), " = 0  →  ", result];
  const part = exponential(scores[key], peak, heat);
  let total = 0;
  for (const s of scores) total += exponential(s, peak, heat);
  const above = heat === 1 ? `${short(scores[key])} − ${factor(peak)}` : `(${short(scores[key])} − ${factor(peak)}) / ${short(heat, 2)}`;
  return [e(above), " = ", short(part), ",  ", short(part), " ÷ ", short(total), " = ", result];
}

/**
 * Return the name of the mask.
 * @param {import("../app.js").App} app
 */
function maskName({ t, open }) {
  if (open.site.mask === "everything()") return t("maskNone");
  return open.site.mask === "causal()" ? t("causalMask") : open.site.mask;
}
