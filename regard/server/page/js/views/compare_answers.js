// The answers of both sides of a comparison; what differs is underlined and in brackets.

import { alignEqual } from "../compare_spec.js";
import { el, fill } from "../dom.js";
import { probability as shortProbability } from "../format.js";
import { labelOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../compare_sides.js").Sides} Sides
 */

/** Candidates of an answer that is not a text. */
const MAX_CANDIDATES = 3;

/**
 * Return one line for each side.
 * @param {App} app
 * @param {Sides} sides
 * @returns {HTMLElement[]}
 */
export function answerLines(app, sides) {
  const lines = [0, 1].map(() => el("p.compare-answer", { tabindex: 0 }));
  const { kind } = sides.spec;
  const answers = [answerOf(sides.first), kind === "edited" ? null : answerOf(sides.second)];
  const { edits } = app.store.state;
  const paint = (/** @type {any} */ after) => {
    const [before, other] = answers;
    const shown = kind === "edited" ? (after ?? (edits.length ? null : before)) : other;
    const follows = after && kind !== "edited" ? [el("span.compare-after", {}, ` → ${app.t("compareAfterEdits")}: `), ...textOf(app, after, before)] : [];
    fill(lines[0], textOf(app, before, shown), follows);
    fill(lines[1], shown === null ? app.t("progress_writing") : textOf(app, shown, before));
  };
  paint(null);
  if (edits.length && app.source.model) app.whileBusy(app.source.model.answer(edits)).then(paint, () => undefined); // the bar of edits shows the error
  return lines;
}

/**
 * Return the answer of a side; that of a snapshot is only in its output.
 * @param {import("../compare_sides.js").Side} side
 */
function answerOf({ about: { answer, output } }) {
  return answer?.kind === "none" && output ? { candidates: output.classes ?? output.next, gaps: output.filled } : answer;
}

/**
 * @param {App} app
 * @param {any} answer
 * @param {any} other what it is compared with
 */
function textOf(app, answer, other) {
  const pieces = piecesOf(answer);
  return pieces ? marked(app, pieces, piecesOf(other)) : candidatesOf(answer);
}

/**
 * Return the pieces of a text; null if the answer is not a text.
 * @param {any} answer
 * @returns {string[] | null}
 */
function piecesOf(answer) {
  if (answer?.kind !== "translation") return null;
  return answer.tokens.filter((/** @type {any} */ one) => one.word !== null).map((/** @type {any} */ one) => one.text);
}

/**
 * Return a text in which what the other one does not have is marked by shape.
 * @param {App} app
 * @param {string[]} pieces
 * @param {string[] | null} other
 */
function marked({ t }, pieces, other) {
  const { to } = alignEqual(pieces, other ?? pieces);
  /** @type {(Node | string)[]} */
  const made = [];
  for (let i = 0; i < pieces.length; ) {
    if (to[i] >= 0) made.push(pieces[i++]);
    else {
      const start = i;
      while (i < pieces.length && to[i] < 0) i++;
      const text = pieces.slice(start, i).join("");
      made.push(/^\s/.test(text) ? " " : "", el("mark.differs", { title: t("compareNew") }, text.trim()));
    }
  }
  return made;
}

/** @param {any} answer */
function candidatesOf(answer) {
  const list = answer?.candidates ?? answer?.gaps?.[0]?.candidates ?? [];
  return list.slice(0, MAX_CANDIDATES).map((/** @type {any} */ one, /** @type {number} */ i) =>
    el("span.compare-candidate", {}, i ? " · " : "", el("b", {}, labelOf(one.name)), " ", el("span.digits", { title: String(one.probability) }, shortProbability(one.probability))));
}
