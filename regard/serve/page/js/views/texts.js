// What the model read and what it answered, token by token.

import { el, fill } from "../dom.js";
import { short } from "../format.js";
import { lineAt } from "../select.js";
import { labelOf } from "../tokens.js";
import { around } from "./lines.js";

/** @typedef {import("../app.js").App} App */

const MOST = 70;

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function texts(app) {
  const element = el("div.texts");
  return {
    element,
    update: (changed) => {
      if (changed.has("pane") && changed.size === 1) return;
      fill(element, rows(app));
    },
  };
}

/** @param {App} app */
function rows(app) {
  const { about, say } = app;
  const made = [];
  if (about.image) made.push(el("div.text", {}, el("h2", {}, say("input")), el("span.plain", {}, say("anImage", { n: about.image.n_rows * about.image.n_columns }))));
  else if (about.tokens.source) made.push(el("div.text", {}, el("h2", {}, say("input")), tokens(app, "source")));
  else if (about.tokens.target) made.push(el("div.text", {}, el("h2", {}, say("input")), tokens(app, "target")));
  const answer = answerOf(app);
  if (answer) made.push(el("div.text.answer", {}, el("h2", {}, say("answer")), answer));
  return made;
}

/** @param {App} app */
function answerOf(app) {
  const { output, tokens: sides } = app.about;
  if (sides.output && sides.source) return tokens(app, "output", output?.log_probabilities);
  if (output?.next) return candidates(output.next);
  if (output?.classes) return candidates(output.classes);
  if (output?.filled?.length) return el("div.fillings", {}, output.filled.map((/** @type {any} */ one) => el("div", {}, el("span.digits", {}, `${one.position}: `), candidates(one.candidates))));
  return null;
}

/** @param {{ name: string, probability: number }[]} list */
function candidates(list) {
  return el("span.candidates", {}, list.map(({ name, probability }) =>
    el("span.candidate", { title: String(probability) }, labelOf(name), " ", el("span.digits", {}, short(probability)), el("span.chance", { style: { width: `${Math.round(100 * probability)}%` } }))));
}

/**
 * @param {App} app
 * @param {string} side
 * @param {number[]} [chances] logarithms
 */
function tokens(app, side, chances) {
  const { about, open, store } = app;
  const { site } = open;
  const { query, key } = app.peek ?? store.state;
  const list = about.tokens[side];
  const words = about.words[side] ?? [];
  const asks = site.asks === side || (side === "output" && site.asks === "target");
  const answers = site.answers === side;
  const weights = answers ? lineAt(app, query).weights.data : null;
  const [first, stop] = around(list.length, asks ? query : key, MOST);
  const most = weights && !open.after.off ? weights.reduce((a, b) => Math.max(a, b), 0) || 1 : 1;
  const made = list.slice(first, stop).map((token, n) => {
    const i = first + n;
    const joins = words[i] !== null && words[i] !== undefined && words[i] === words[i - 1];
    const share = weights && !open.after.off ? weights[i] / most : 0;
    const classes = ["token", joins ? "joins" : "", words.length && words[i] === null ? "special" : "", asks && i === query ? "asks" : "", answers && i === key ? "answers" : ""];
    return el(`button.${classes.filter(Boolean).join(".")}`, {
      style: { "--share": (0.75 * share).toFixed(3) },
      title: chances ? `p = ${short(Math.exp(chances[i]))}` : weights ? short(weights[i]) : undefined,
      onclick: () => app.store.set({ ...placeOf(app, side, i), pinned: true }),
    }, labelOf(token), chances ? el("span.chance", { style: { width: `${Math.round(100 * Math.exp(chances[i]))}%` } }) : "");
  });
  const hidden = list.length - (stop - first);
  return el("div.tokens", {}, first ? el("span.more", {}, "…") : "", made, hidden ? el("span.more", {}, app.say("moreTokens", { n: hidden })) : "");
}

/**
 * What a click on a token means: who asks, or who answers; a written word goes to a site that wrote it.
 * @param {App} app
 * @param {string} side
 * @param {number} i
 */
function placeOf({ open, sites, about }, side, i) {
  const { site } = open;
  const asking = side === "output" ? "target" : side;
  if (site.asks === asking) return { query: i };
  if (site.answers === side) return { key: i };
  const start = sites.find((one) => one.path === about.start.site);
  const other = start?.asks === asking ? start : sites.find((one) => one.asks === asking);
  return other ? { site: other.path, head: other === start ? about.start.head : 0, query: i } : {};
}
