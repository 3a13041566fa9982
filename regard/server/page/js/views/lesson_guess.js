// A question before a reveal: the reader chooses, then every option shows its number.

import { el, fill } from "../dom.js";
import { probability } from "../format.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../course/parts.js").Guess} Guess
 * @typedef {import("../course/parts.js").Guessed} Guessed
 * @typedef {import("../course/parts.js").Option} Option
 */

/**
 * Return the number of an option as the page shows it.
 * @param {number} x
 */
export function shownValue(x) {
  return Number.isInteger(x) ? x.toLocaleString("en-US") : probability(x);
}

/**
 * @param {Guess} guess
 * @param {Option[]} options
 */
export function bestOption({ wanted = "largest" }, options) {
  const sign = wanted === "largest" ? 1 : -1;
  return options.reduce((best, one, i) => (sign * one.value > sign * options[best].value ? i : best), 0);
}

/**
 * The question, its options, and after a choice their numbers.
 * @param {App} app
 * @param {Guess} guess
 * @param {Option[]} options
 * @param {{ guessed: Guessed | null, say: (key: any, values?: Record<string, any>) => (Node | string)[], choose: (i: number) => void }} given
 *   `choose(-1)` shows the numbers without a guess
 */
export function guessBlock(app, guess, options, { guessed, say, choose }) {
  const { t } = app;
  const buttons = options.map((option, i) => optionButton(option, i, options, guessed, () => choose(i)));
  const block = el("div.guess", { "data-answered": String(guessed !== null) },
    el("p.ask", {}, el("b", {}, t("lessonGuess"), ". "), say(guess.ask)),
    el("div.options", { role: "group", "aria-label": t("lessonGuess") }, buttons),
    guessed ? "" : el("button.quiet.anyway", { onclick: () => choose(-1) }, t("lessonAnyway")));
  const reveal = el("p.reveal", { "data-says": "" });
  if (guessed) fill(reveal, revealText(t, guess, guessed, say));
  block.append(reveal);
  return block;
}

/**
 * @param {Option} option
 * @param {number} i
 * @param {Option[]} options
 * @param {Guessed | null} guessed
 * @param {() => void} onclick
 */
function optionButton({ label, value }, i, options, guessed, onclick) {
  if (!guessed) return el("button.option", { "data-option": i, onclick }, label);
  const most = Math.max(...options.map((one) => Math.abs(one.value)), 1e-12);
  const marks = `${i === guessed.best ? " ✓" : ""}`;
  return el(`span.option${i === guessed.best ? ".best" : ""}${i === guessed.chosen ? ".chosen" : ""}`, { "data-option": i, style: { "--share": (Math.abs(value) / most).toFixed(3) } },
    label, marks, " ", el("span.digits", { "data-value": value }, shownValue(value)));
}

/**
 * @param {App["t"]} t
 * @param {Guess} guess
 * @param {Guessed} guessed
 * @param {(key: any, values?: Record<string, any>) => (Node | string)[]} say
 */
function revealText(t, guess, { options, chosen, best }, say) {
  const right = chosen === best || (chosen >= 0 && options[chosen].value === options[best].value);
  const lead = right ? t("lessonRight") : chosen >= 0 ? t("lessonWrong", { chosen: options[chosen].label, x: shownValue(options[chosen].value) }) : "";
  return [lead, lead ? " " : "", ...say(guess.reveal, { best: options[best].label, value: shownValue(options[best].value) })];
}
