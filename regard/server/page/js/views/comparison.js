// Before and after: what the model answers, and how probable what it said before has become.

import { el, fill } from "../dom.js";
import { short } from "../format.js";
import { labelOf } from "../tokens.js";

/** @typedef {import("../app.js").App} App */

/** Tokens whose probability has moved the most are shown. */
const MOST = 8;

/** So long, in milliseconds, edits must rest before the model writes anew. */
const REST = 150;

/**
 * What edits do to the words that were written is shown at once; what the model writes instead
 * takes a search, which begins when the reader pauses and ends when the edits change.
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function comparison(app) {
  const element = el("section.compared", { "aria-live": "polite" });
  let known = "";
  let going = new AbortController();
  const show = async (/** @type {import("../edits.js").Edit[]} */ edits, /** @type {AbortSignal} */ signal) => {
    const { model } = app.source;
    if (!model) return;
    try {
      const effect = await model.effect(edits);
      if (!effect || signal.aborted) return;
      fill(element, shown(app, effect.answer, effect.final));
      if (effect.final) return;
      await new Promise((done) => setTimeout(done, REST));
      if (signal.aborted || !same(edits, app.store.state.edits)) return; // a slider is on its way
      const answer = await model.answer(edits, signal);
      if (!signal.aborted) fill(element, shown(app, answer, true));
    } catch (error) {
      if (!signal.aborted) fill(element, el("p.fault", {}, /** @type {Error} */ (error).message));
    }
  };
  return {
    element,
    update: (changed) => {
      const { edits, page } = app.store.state;
      element.hidden = !edits.length || page !== "explore";
      const text = JSON.stringify(edits);
      if (text !== known || changed.has("all")) {
        going.abort();
        going = new AbortController();
        if (edits.length) show(edits, going.signal);
      }
      known = text;
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
 * @param {boolean} final whether the model has written anew; otherwise only probabilities are known
 */
function shown(app, answer, final) {
  const { say } = app;
  const made = [];
  if (answer.kind === "translation") {
    const stays = same(answer.ids, answer.before.ids);
    made.push(el("div.pair", { "data-same": stays },
      el("h2", {}, say("answerBefore")), el("span.was", {}, answer.before.text),
      el("span.arrow", {}, "→"),
      el("h2", {}, say("answerAfter")), !final ? el("span.is.pending", {}, say("doing_writing")) : stays ? el("span.is", {}, say("sameAnswer")) : el("span.is", {}, marked(answer.before.tokens, answer.tokens))));
  }
  const [was, is] = [bestOf(answer.before), bestOf(answer)];
  if (was && is) {
    made.push(el("div.pair", { "data-same": was.name === is.name },
      el("h2", {}, say("answerBefore")), candidate("was", was), el("span.arrow", {}, "→"),
      el("h2", {}, say("answerAfter")), candidate("is", is)));
  }
  if (answer.unmet?.length) made.push(el("p.note", {}, say("unmet", { n: answer.unmet.length })));
  const moved = [...(answer.compare ?? [])].sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before)).slice(0, MOST);
  moved.sort((a, b) => (a.at ?? 0) - (b.at ?? 0));
  made.push(el("ul.moved", {}, moved.map((one) => row(app, one))));
  return made;
}

/**
 * The best candidate of an answer that is no text: a class, a next token, what fills the first gap.
 * @param {any} answer
 * @returns {import("../source.js").Candidate | undefined}
 */
function bestOf(answer) {
  return (answer.candidates ?? answer.gaps?.[0]?.candidates)?.[0];
}

/**
 * @param {"was" | "is"} when
 * @param {import("../source.js").Candidate} one
 */
function candidate(when, { name, probability }) {
  return el(`span.${when}`, {}, labelOf(name), " ", el("span.digits", {}, short(probability)));
}

/**
 * The new answer; tokens that were not there before are underlined.
 * @param {any[]} before
 * @param {any[]} after
 */
function marked(before, after) {
  const old = new Set(before.map((one) => one.text));
  return after.filter((one) => one.word !== null).map((one) => (old.has(one.text) ? one.text : el("u", {}, one.text)));
}

/**
 * @param {App} app
 * @param {any} one
 */
function row(app, { name, before, after }) {
  const sign = short(before) === short(after) ? "=" : after > before ? "▲" : "▼";
  return el("li", { title: app.say("chanceOf", { token: labelOf(name) }) },
    el("b", {}, labelOf(name)), " ", el("span.digits", {}, `${short(before)} → ${short(after)} ${sign}`));
}
