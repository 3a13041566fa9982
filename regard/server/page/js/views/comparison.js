// The answer before and after edits, and how the probabilities of its tokens changed.

import { el, fill } from "../dom.js";
import { probability as shortProbability } from "../format.js";
import { labelOf } from "../tokens.js";

/** @typedef {import("../app.js").App} App */

/** The number of tokens shown, those with the largest change of probability. */
const MAX_TOKENS = 8;

/** The pause after the last edit, in milliseconds, before the model searches again. */
const SEARCH_DELAY = 150;

/**
 * Show the effect of edits on the same answer at once. The new answer needs a search, which starts
 * when the reader pauses and is canceled when the edits change.
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function comparison(app) {
  const content = el("div.content", { "data-says": "" });
  const more = el("button.icon.unfold", { title: app.t("allChanges"), "aria-label": app.t("allChanges"), "aria-expanded": "false", onclick: () => more.setAttribute("aria-expanded", String(element.toggleAttribute("data-open"))) }, "▴");
  const element = el("section.comparison", { "aria-label": app.t("answerAfter") }, content, more);
  let lastEdits = "";
  let pending = new AbortController();
  const show = async (/** @type {import("../edits.js").Edit[]} */ edits, /** @type {AbortSignal} */ signal) => {
    const { model } = app.source;
    if (!model) return;
    try {
      const effect = await model.effect(edits);
      if (!effect || signal.aborted) return;
      fill(content, renderAnswer(app, effect.answer, effect.final));
      if (effect.final) return;
      await new Promise((done) => setTimeout(done, SEARCH_DELAY));
      if (signal.aborted || !same(edits, app.store.state.edits)) return; // a slider is moving
      const answer = await model.answer(edits, signal);
      if (!signal.aborted) fill(content, renderAnswer(app, answer, true));
    } catch (error) {
      if (signal.aborted) return;
      fill(content, el("p.error", {}, app.t.error(error)));
      app.refuse(error, edits);
    }
  };
  return {
    element,
    update: (changed) => {
      const { edits, page } = app.store.state;
      element.hidden = !edits.length || page === "worked";
      const text = JSON.stringify(edits);
      if (text !== lastEdits || changed.has("all")) {
        pending.abort();
        pending = new AbortController();
        if (edits.length) show(edits, pending.signal);
      }
      lastEdits = text;
    },
  };
}

/**
 * @param {any} a
 * @param {any} b
 */
function same(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}

/**
 * @param {App} app
 * @param {any} answer
 * @param {boolean} final whether the new answer is known; otherwise only probabilities are
 */
function renderAnswer(app, answer, final) {
  const { t } = app;
  const made = [];
  if (answer.kind === "translation") {
    const stays = same(answer.ids, answer.before.ids);
    made.push(el("div.pair", { "data-same": stays },
      el("h2", {}, t("answerBefore")), el("span.before", {}, answer.before.text),
      el("span.arrow", {}, "→"),
      el("h2", {}, t("answerAfter")), !final ? el("span.after.pending", {}, t("progress_writing")) : stays ? el("span.after", {}, t("sameAnswer")) : el("span.after", {}, markNewTokens(answer.before.tokens, answer.tokens))));
  }
  const [was, is] = [bestOf(answer.before), bestOf(answer)];
  if (was && is) {
    made.push(el("div.pair", { "data-same": was.name === is.name },
      el("h2", {}, t("answerBefore")), candidate("before", was), el("span.arrow", {}, "→"),
      el("h2", {}, t("answerAfter")), candidate("after", is)));
  }
  if (answer.unmet?.length) made.push(el("p.note", {}, t("unmatchedEdits", { n: answer.unmet.length })));
  const moved = [...(answer.compare ?? [])].sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before)).slice(0, MAX_TOKENS);
  moved.sort((a, b) => (a.at ?? 0) - (b.at ?? 0));
  made.push(el("ul.moved", {}, moved.map((one) => probabilityRow(app, one))));
  return made;
}

/**
 * Return the best candidate of an answer that is not a text: a class, a next token, or the first gap.
 * @param {any} answer
 * @returns {import("../source.js").Candidate | undefined}
 */
function bestOf(answer) {
  return (answer.candidates ?? answer.gaps?.[0]?.candidates)?.[0];
}

/**
 * @param {"before" | "after"} when
 * @param {import("../source.js").Candidate} one
 */
function candidate(when, { name, probability }) {
  return el(`span.${when}`, {}, labelOf(name), " ", el("span.digits", {}, shortProbability(probability)));
}

/**
 * Return the new answer with new tokens underlined.
 * @param {any[]} before
 * @param {any[]} after
 */
function markNewTokens(before, after) {
  const old = new Set(before.map((one) => one.text));
  return after.filter((one) => one.word !== null).map((one) => (old.has(one.text) ? one.text : el("u", {}, one.text)));
}

/**
 * @param {App} app
 * @param {any} one
 */
function probabilityRow(app, { name, before, after }) {
  const [old, now] = [shortProbability(before), shortProbability(after)];
  const sign = old === now ? "=" : after > before ? "▲" : "▼";
  return el("li", { title: app.t("probabilityOf", { token: labelOf(name) }) },
    el("b", {}, labelOf(name)), " ", el("span.digits", {}, `${old} → ${now} ${sign}`));
}
