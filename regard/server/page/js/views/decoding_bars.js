// The distribution of the next token: candidates as bars, and what sampling makes of them.

import { el, fill } from "../dom.js";
import { full, probability, short } from "../format.js";
import { MOVE, move } from "../motion.js";
import { labelOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").DecodingStep} DecodingStep
 * @typedef {DecodingStep["candidates"][number]} StepCandidate
 */

/**
 * @param {App} app
 * @param {(id: number) => void} branch called with the token that is to be written instead
 */
export function candidateBars(app, branch) {
  const { t } = app;
  const element = el("section.decoding-bars", { "aria-label": t("nextTokenTitle") });

  /**
   * Show the candidates of a step.
   * @param {DecodingStep | null} step
   * @param {boolean} sampled whether temperature, top-k and top-p apply
   */
  const show = (step, sampled) => {
    element.classList.toggle("sampled", sampled);
    fill(element, heading(app, sampled), step ? el("ol", {}, step.candidates.map((one) => candidateRow(app, one, step, sampled, branch))) : "",
      el("p.note.small", {}, sampled ? `${t("columnsHelp")} ` : "", t("whatIfHint")));
  };

  /** Let the bars rise. @param {number} speed */
  const rise = (speed) => Promise.all([...element.querySelectorAll(".bar")].map((bar, i) =>
    move(bar, { transform: "scaleX(0)" }, (0.8 * MOVE) / speed, (20 * i) / speed)));

  /** The label of the token that is written. */
  const chosen = () => element.querySelector(".chosen .name");
  return { element, show, rise, chosen };
}

/**
 * @param {App} app
 * @param {boolean} sampled
 */
function heading({ t }, sampled) {
  const columns = sampled ? ["log p", "÷ T", t("columnCut"), "p"] : ["log p", "p"];
  return el("header", {}, el("h2", {}, t("nextTokenTitle")), columns.map((one) => el("span.column", { "aria-hidden": "true" }, one)), el("span.track"));
}

/**
 * @param {App} app
 * @param {StepCandidate} one
 * @param {DecodingStep} step
 * @param {boolean} sampled
 * @param {(id: number) => void} branch
 */
function candidateRow({ t }, one, step, sampled, branch) {
  const name = labelOf(one.name);
  const chosen = one.id === step.chosen;
  const cut = one.cut ? t(/** @type {any} */ (`cut_${one.cut}`)) : t("cutNone");
  const number = (/** @type {number} */ x) => el("span.column.digits", { title: full(x) }, short(x, 2));
  const middle = sampled
    ? [one.scaled === null ? el("span.column.digits", {}, "–") : number(one.scaled), el("span.column.cut", { title: cut, "aria-label": cut }, one.cut ? "✕" : "✓")]
    : [];
  const row = el(`button.candidate-row${chosen ? ".chosen" : ""}${one.cut ? ".cut" : ""}`, {
    "data-id": one.id,
    "data-probability": one.probability,
    "aria-current": chosen ? "true" : undefined,
    title: chosen ? undefined : t("whatIf", { token: name }),
    onclick: chosen ? undefined : () => branch(one.id),
  }, el("span.name", {}, name), number(one.log_prob), middle,
    el("span.column.digits.p", { title: full(one.probability) }, probability(one.probability)),
    el("span.track", {}, el("span.bar", { style: { width: `${(100 * one.probability).toFixed(2)}%` } })));
  return el("li", {}, one.rank >= step.candidates.length - 1 && one.rank > 7 ? el("span.gap-mark", { "aria-hidden": "true" }, "⋮") : "", row);
}
