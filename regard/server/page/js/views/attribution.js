// Attribution: what each part of the model adds to the logit of a word, as signed bars.

import { el, fill } from "../dom.js";
import { full, plainNumber, short } from "../format.js";
import { formula, sum, v } from "../formula.js";
import { check, radioGroup } from "../radio_group.js";
import { leadsToWords } from "../selection.js";
import { labelOf } from "../tokens.js";
import { partName, siteOf } from "./part_names.js";
import { step } from "./step_parts.js";
import { tabSeparated } from "./tables.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Attribution} Attribution
 * @typedef {import("../source.js").AttributionPart} AttributionPart
 * @typedef {import("../source.js").Lens} Lens
 * @typedef {import("./tables.js").CustomView} CustomView
 * @typedef {{ label: string, value: number, part: AttributionPart | null }} Bar
 * @typedef {{ position?: number, token?: number, relative_to?: number }} Place
 */

/** The bars that are shown at first, and in the last step. */
const MAX_BARS = 16;
const MAX_STEP_BARS = 6;
/** The delay, in milliseconds, before the last step asks the server: the mouse may move on. */
const STEP_DELAY = 250;

/**
 * @param {HTMLElement} element
 * @param {App} app
 * @param {{ parts: Attribution, lens: Lens }} first
 * @param {(place: Place) => Promise<{ parts: Attribution, lens: Lens } | null>} load
 * @returns {CustomView}
 */
export function draw(element, app, first, load) {
  const { t, store } = app;
  const at = { ...first, all: false, order: "size" };
  const token = el("select", { "aria-label": t("attributionToken"), onchange: () => show(at.parts.position) });
  const other = el("select", { "aria-label": t("attributionAgainst"), onchange: () => show(at.parts.position) });
  const orders = ["size", "layers"].map((one) => el("button", { role: "radio", "data-choice": one, onclick: () => reorder(one) }, t(/** @type {any} */ (`attribution_${one}`))));
  const holder = el("div.parts-holder");
  const tools = el("div.view-tools.tools", {},
    el("label", {}, t("attributionToken"), token),
    el("label", {}, t("attributionAgainst"), other),
    radioGroup(el("div.choice.part-order", { role: "radiogroup", "aria-label": t("attributionOrder") }, orders)),
    el("button.to-cause", { onclick: () => store.set({ view: "lens" }) }, t("lensOpen")));
  fill(element, tools, el("figure", {}, holder, el("figcaption", {}, t("attributionHow"))));
  const paint = () => {
    const { parts } = at;
    fillChoices(app, token, other, at.parts, at.lens);
    check(orders, (button) => button.dataset.choice === at.order);
    const bars = barsOf(t, parts, at.all ? Infinity : MAX_BARS, at.order === "layers");
    const hidden = parts.parts.length > MAX_BARS;
    const more = el("button.quiet.more-parts", { onclick: () => toggle() }, at.all ? t("attributionFewer") : t("attributionAll", { n: String(parts.parts.length) }));
    fill(holder, drawBars(app, bars), sumOf(t, parts), hidden ? more : "");
  };
  const toggle = () => {
    at.all = !at.all;
    paint();
  };
  const reorder = (/** @type {string} */ order) => {
    at.order = order;
    paint();
  };
  let asked = first.parts.position;
  const show = (/** @type {number | null} */ position) => {
    const moved = position !== at.parts.position;
    const chosen = moved ? {} : { token: Number(token.value), ...(other.value ? { relative_to: Number(other.value) } : {}) };
    asked = position;
    app.whileBusy(load({ ...(position === null ? {} : { position }), ...chosen })).then((data) => {
      if (!data || !element.isConnected || asked !== position) return;
      Object.assign(at, data);
      paint();
      app.setPeek(app.peek); // updates the sentence and the numbers
    }, () => undefined); // no server: keep what is shown
  };
  paint();
  return {
    select: (query, _, peek) => void (!peek && at.parts.position !== null && query !== asked && show(query)),
    says: () => describe(t, at.parts),
    reads: () => numbersOf(t, at.parts),
    table: () => el("p", {}, describe(t, at.parts)),
    data: () => tabSeparated(at.parts.parts.map((part) => [partName(t, part), plainNumber(part.value)])),
  };
}

/**
 * Offer the most probable words.
 * @param {App} app
 * @param {HTMLElement & Record<string, any>} token
 * @param {HTMLElement & Record<string, any>} other
 * @param {Attribution} parts
 * @param {Lens} lens
 */
function fillChoices({ t }, token, other, parts, lens) {
  const j = parts.position === null ? 0 : parts.position - lens.start;
  const ids = [...new Set([...(lens.ids[lens.stations.length - 1][j] ?? []), lens.answers[j] ?? parts.token, parts.token])];
  const name = (/** @type {number} */ id) => labelOf(id === parts.token ? parts.name : (lens.names[id] ?? String(id)));
  const options = (/** @type {number[]} */ these, /** @type {number | null} */ chosen) => these.map((id) => el("option", { value: id, selected: id === chosen }, name(id)));
  fill(token, options(ids, parts.token));
  fill(other, el("option", { value: "", selected: parts.relative_to === null }, t("attributionAlone")), options(ids.filter((id) => id !== parts.token), parts.relative_to));
  token.value = String(parts.token);
  other.value = parts.relative_to === null ? "" : String(parts.relative_to);
}

/**
 * Return the largest parts and the sum of the others.
 * @param {App["t"]} t
 * @param {Attribution} found
 * @param {number} most
 * @param {boolean} ordered whether the bars are in the order of computation
 * @returns {Bar[]}
 */
export function barsOf(t, { parts }, most, ordered) {
  const ranked = [...parts].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const shown = new Set(ranked.slice(0, most));
  const bars = (ordered ? parts : ranked).filter((part) => shown.has(part)).map((part) => ({ label: partName(t, part), value: part.value, part }));
  const rest = ranked.slice(bars.length);
  if (!rest.length) return bars;
  const value = rest.reduce((total, part) => total + part.value, 0);
  return [...bars, { label: t("attributionSmaller", { n: String(rest.length) }), value, part: null }];
}

/**
 * Draw bars to both sides of zero; a head's name opens the head.
 * @param {App} app
 * @param {Bar[]} bars
 */
export function drawBars(app, bars) {
  const { t, store } = app;
  const values = bars.filter((bar) => bar.part).map((bar) => bar.value); // a sum of many parts would dwarf them
  const low = Math.min(0, ...values);
  const span = Math.max(1e-9, Math.max(0, ...values) - low);
  const zero = (-100 * low) / span;
  const items = bars.map(({ label, value, part }) => {
    const bar = el(`span.bar.${value < 0 ? "negative" : "positive"}`);
    bar.style.setProperty("--from", `${zero + (100 * Math.min(0, value)) / span}%`);
    bar.style.setProperty("--length", `${(100 * Math.abs(value)) / span}%`);
    const open = () => part && store.set({ site: siteOf(part), head: part.head ?? 0, view: "grid" });
    const name = part?.kind === "head" ? el("button.name", { onclick: open, title: t("attributionOpen", { part: label }) }, label) : el("span.name", {}, label);
    return el("li", { "data-kind": part?.kind ?? "rest" }, name, el("span.track", { "aria-hidden": "true" }, part ? bar : ""), el("span.digits", { title: full(value) }, signed(value)));
  });
  const list = el("ol.parts", {}, items);
  list.style.setProperty("--zero", `${zero}%`);
  return list;
}

/** @param {number} x */
function signed(x) {
  return x > 0 ? `+${short(x)}` : short(x);
}

/**
 * @param {App["t"]} t
 * @param {Attribution} found
 */
function sumText(t, { parts, bias, logit, relative_to }) {
  const numbers = { sum: short(parts.reduce((total, part) => total + part.value, 0)), bias: short(bias), logit: short(logit) };
  return t(relative_to === null ? "attributionSum" : "attributionSumAgainst", numbers);
}

/**
 * @param {App["t"]} t
 * @param {Attribution} found
 */
function sumOf(t, found) {
  return el("p.parts-sum", {}, sumText(t, found));
}

/**
 * @param {App["t"]} t
 * @param {Attribution} found
 */
function numbersOf(t, { name, logit, bias }) {
  const figure = (/** @type {string} */ label, /** @type {number} */ x) => el("span.figure", {}, el("i", {}, label), " ", el("b", { title: full(x) }, short(x)));
  return [el("span.who", {}, el("b.term.query", {}, labelOf(name))), figure(t("logit"), logit), figure(t("partBias"), bias)];
}

/**
 * Name the parts that pushed a word most, and held it back most.
 * @param {App["t"]} t
 * @param {Attribution} found
 */
function describe(t, { parts, name }) {
  const ordered = [...parts].sort((a, b) => b.value - a.value);
  const [first, last] = [ordered[0], ordered[ordered.length - 1]];
  const words = { token: el("b.term.query", {}, labelOf(name)), first: el("b", {}, partName(t, first)), x: signed(first.value) };
  if (last.value >= 0) return t.parts("attributionSays", words);
  return t.parts("attributionSaysDown", { ...words, last: el("b", {}, partName(t, last)), y: signed(last.value) });
}

/**
 * The last step: from the residual stream to the answer.
 * @param {import("./steps.js").StepContext} at
 */
export function answerStep({ app, query }) {
  const { t, about, open, store, source } = app;
  if (!leadsToWords(about, open.site) || !source.attribution) return null;
  const body = el("div.answer-parts", {}, el("p.small", {}, t("loading")));
  const made = step("answer", t("stepAnswer"), formula("ℓ = Σ a + b", v("ℓ"), " = ", sum("i"), v("a", "i"), " + ", v("b")), body);
  const fillIn = (/** @type {Attribution | null} */ found) => {
    if (!found) return made.remove();
    const hint = t.parts(found.entries === "classes" ? "stepAnswerClassHint" : "stepAnswerHint", { token: el("b", {}, labelOf(found.name)) });
    const more = el("button.to-cause", { onclick: () => store.set({ query, view: "attribution", pinned: true }) }, t("lensWhy", { token: labelOf(found.name) }));
    const lens = el("button.to-cause", { onclick: () => store.set({ query, view: "lens", pinned: true }) }, t("lensOpen"));
    return fill(body, el("p.small", {}, hint), drawBars(app, barsOf(t, found, MAX_STEP_BARS, false)), sumOf(t, found), el("p.links", {}, more, lens));
  };
  const place = about.output?.classes ? {} : { position: query };
  setTimeout(() => {
    if (made.isConnected) source.attribution?.(store.state.edits, place).then(fillIn, () => made.remove()); // a model without a readout
  }, STEP_DELAY);
  return made;
}
