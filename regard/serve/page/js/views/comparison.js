// Before and after: what the model answers, and how probable what it said before has become.

import { el, fill } from "../dom.js";
import { short } from "../format.js";
import { labelOf } from "../tokens.js";

/** @typedef {import("../app.js").App} App */

/** Tokens whose probability has moved the most are shown. */
const MOST = 8;

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function comparison(app) {
  const element = el("section.compared", { "aria-live": "polite" });
  const ask = oneAtATime(async (/** @type {import("../edits.js").Edit[]} */ edits) => {
    if (!app.source.answer) return;
    const { source } = app;
    try {
      const answer = await app.source.answer(edits);
      if (source === app.source && same(edits, app.store.state.edits)) fill(element, shown(app, answer));
    } catch (error) {
      if (source === app.source) fill(element, el("p.fault", {}, /** @type {Error} */ (error).message));
    }
  });
  let known = "";
  return {
    element,
    update: (changed) => {
      const { edits, page } = app.store.state;
      element.hidden = !edits.length || page !== "explore";
      const text = JSON.stringify(edits);
      if (edits.length && (text !== known || changed.has("all"))) ask(edits);
      known = text;
    },
  };
}

/**
 * A function that does one thing at a time: of what it is told meanwhile, only the last counts.
 * @template T
 * @param {(given: T) => Promise<void>} act
 */
function oneAtATime(act) {
  /** @type {{ given: T } | null} */
  let waiting = null;
  let busy = false;
  return async (/** @type {T} */ given) => {
    waiting = { given };
    if (busy) return;
    busy = true;
    while (waiting) {
      const next = /** @type {{ given: T }} */ (waiting);
      waiting = null;
      await act(next.given);
    }
    busy = false;
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
 */
function shown(app, answer) {
  const { say } = app;
  const made = [];
  if (answer.kind === "translation") {
    const stays = same(answer.ids, answer.before.ids);
    made.push(el("div.pair", { "data-same": stays },
      el("h2", {}, say("answerBefore")), el("span.was", {}, answer.before.text),
      el("span.arrow", {}, "→"),
      el("h2", {}, say("answerAfter")), stays ? el("span.is", {}, say("sameAnswer")) : el("span.is", {}, marked(answer.before.tokens, answer.tokens))));
  }
  if (answer.unmet?.length) made.push(el("p.note", {}, say("unmet", { n: answer.unmet.length })));
  const moved = [...(answer.compare ?? [])].sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before)).slice(0, MOST);
  moved.sort((a, b) => (a.at ?? 0) - (b.at ?? 0));
  made.push(el("ul.moved", {}, moved.map((one) => row(app, one))));
  return made;
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
  const change = after - before;
  const sign = Math.abs(change) < 0.0005 ? "=" : change > 0 ? "▲" : "▼";
  return el("li", { title: app.say("chanceOf", { token: labelOf(name) }) },
    el("b", {}, labelOf(name)), " ", el("span.digits", {}, `${short(before)} → ${short(after)} ${sign}`));
}
