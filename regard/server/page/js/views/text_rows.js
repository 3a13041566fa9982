// Input and answer, token by token.

import { openHead } from "../controller.js";
import { el, fill } from "../dom.js";
import { probability as shortProbability, short } from "../format.js";
import { largestKey, nameHead } from "../kept_choices.js";
import { largest } from "../matrix.js";
import { rove } from "../radio_group.js";
import { mostAligned, rowAt } from "../selection.js";
import { labelOf, withReplacedTokens } from "../tokens.js";
import { canWrite, startWriting } from "./decoding.js";
import { photoOf } from "./image.js";
import { around } from "./lines.js";

/** @typedef {import("../app.js").App} App */

const MAX_TOKENS = 70;

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function textRows(app) {
  const element = el("div.texts");
  let shown = "";
  return {
    element,
    update: (changed) => {
      if (changed.has("pane") && changed.size === 1) return;
      const put = app.store.state.edits.filter((edit) => edit.kind === "token");
      const now = `${changed.has("all")} ${JSON.stringify([app.sites.length && spansOf(app), put])}`;
      if (changed.has("sampling")) updateCandidates(app, element);
      if (now !== shown) fill(element, rows(app));
      shown = now.replace("true", "false");
      const weights = app.open.after.off ? null : rowAt(app, (app.peek ?? app.store.state).query).weights.data;
      const most = weights ? largest(weights) || 1 : 1;
      for (const one of element.querySelectorAll(".token")) refresh(app, /** @type {HTMLElement} */ (one), weights, most);
    },
  };
}

/**
 * Return the range of tokens of each side: all, or those around the selection.
 * @param {App} app
 * @returns {Record<string, [number, number]>}
 */
function spansOf(app) {
  const { query, key } = app.peek ?? app.store.state;
  const spans = Object.entries(app.about.tokens).map(([side, list]) => [side, around(list.length, (isAsking(app, side) ? query : key) - shiftOf(app, side), MAX_TOKENS)]);
  return Object.fromEntries(spans);
}

/**
 * @param {App} app
 * @param {string} side
 */
function isAsking({ open }, side) {
  return open.site.asks === side || (side === "output" && open.site.asks === "target");
}

/**
 * Return how many positions the decoder reads before a token of the answer: its self-attention asks at
 * the token that it reads, cross-attention at the one that it writes.
 * @param {Pick<App, "open">} app
 * @param {string} side
 */
function shiftOf({ open }, side) {
  return side === "output" && open.site.asks === "target" && open.site.answers === "target" ? 1 : 0;
}

/** @param {App} app */
function rows(app) {
  const { about, t } = app;
  const made = [];
  if (about.image) made.push(el("div.text", {}, el("h2", {}, t("input")), thumbnail(app), el("span.plain", {}, t("anImage", { n: about.image.n_rows * about.image.n_columns }))));
  else if (about.tokens.source) made.push(el("div.text", {}, el("h2", {}, t("input")), tokens(app, "source")));
  else if (about.tokens.target) made.push(el("div.text", {}, el("h2", {}, t("input")), tokens(app, "target")));
  const answer = answerOf(app);
  const write = canWrite(app) ? el("button.write-answer", { title: t("writeHelp"), onclick: () => startWriting(app) }, el("span", { "aria-hidden": "true" }, "▶ "), t("writeAnswer")) : null;
  if (answer) made.push(el("div.text.answer", {}, el("h2", {}, t("answer")), answer, write));
  return made;
}

/**
 * The image as the model reads it, small.
 * @param {App} app
 */
function thumbnail({ about, t }) {
  const photo = photoOf(/** @type {import("../source.js").Picture} */ (about.image));
  photo.className = "thumbnail";
  photo.setAttribute("role", "img");
  photo.setAttribute("aria-label", t("imageShown"));
  return photo;
}

/** @param {App} app */
function answerOf(app) {
  const { output, tokens: sides } = app.about;
  if (sides.output && sides.source) return tokens(app, "output", output?.log_probabilities);
  if (output?.next) {
    const place = el("div.next", {}, candidates(output.next));
    updateCandidates(app, place);
    return place;
  }
  if (output?.classes) return candidates(output.classes);
  if (output?.filled?.length) return el("div.fillings", {}, output.filled.map((/** @type {any} */ one) => filling(app, one, output.filled.length > 1)));
  return null;
}

/**
 * The candidates for a masked token; a click selects its position.
 * @param {App} app
 * @param {{ position: number, candidates: import("../source.js").Candidate[] }} filled
 * @param {boolean} numbered
 */
function filling(app, { position, candidates: list }, numbered) {
  const name = `${app.about.tokens.source?.[position] ?? ""}${numbered ? ` ${position}` : ""} →`;
  return el("div", { onclick: () => selectToken(app, "source", position) }, el("button.gap-name", {}, name), candidates(list));
}

/**
 * Show the next-token candidates at the sampling temperature; a click continues with one.
 * @param {App} app
 * @param {HTMLElement} around
 */
async function updateCandidates(app, around) {
  const { source, store } = app;
  const place = around.matches(".next") ? around : around.querySelector(".next");
  const found = place && (await source.model?.next(store.state.sampling).catch(() => null));
  if (!found || source !== app.source) return;
  const continueWith = (/** @type {string} */ text) => app.root.dispatchEvent(new CustomEvent("regard-request", { detail: { text } }));
  fill(place, candidates(found, app.t("continueWith"), continueWith));
}

/**
 * @param {import("../source.js").Candidate[]} list
 * @param {string} [help]
 * @param {(text: string) => void} [pick] called with the text of a clicked candidate
 */
function candidates(list, help = "", pick) {
  return el("span.candidates", pick ? {} : { tabindex: 0 }, list.map(({ name, probability, text }) => {
    const chosen = pick && text;
    const about = { title: `${chosen ? `${help} ` : ""}${probability}`, onclick: chosen ? () => pick(text) : undefined };
    return el(chosen ? "button.candidate" : "span.candidate", about, labelOf(name), " ", el("span.digits", {}, shortProbability(probability)), el("span.chance", { style: { width: `${Math.round(100 * probability)}%` } }));
  }));
}

/**
 * @param {App} app
 * @param {string} side
 * @param {number[]} [logProbs] of the tokens
 */
function tokens(app, side, logProbs) {
  const old = app.about.tokens[side];
  const list = withReplacedTokens(app.about, app.store.state.edits).tokens[side];
  const words = app.about.words[side] ?? [];
  const [first, stop] = spansOf(app)[side];
  const made = list.slice(first, stop).map((token, n) => {
    const i = first + n;
    const joins = words[i] !== null && words[i] !== undefined && words[i] === words[i - 1];
    const special = words.length > 0 && words[i] === null;
    return el(`button.token${joins ? ".joins" : ""}${special ? ".special" : ""}${token === old[i] ? "" : ".replaced"}`, {
      "data-side": side,
      "data-i": i,
      "data-chance": logProbs ? Math.exp(logProbs[i]) : undefined,
      onclick: () => selectToken(app, side, i),
    }, labelOf(token), logProbs ? el("span.chance", { style: { width: `${Math.round(100 * Math.exp(logProbs[i]))}%` } }) : "");
  });
  const hidden = list.length - (stop - first);
  const characters = list.every((token, i) => (words.length > 0 && words[i] === null) || [...labelOf(token)].length < 2); // pieces to click, not words to read
  return rove(el(`div.tokens${list.length > 30 ? ".many" : ""}${characters ? ".characters" : ""}`, {}, first ? el("span.more", {}, "…") : "", made, hidden ? el("span.more", {}, app.t("moreTokens", { n: hidden })) : ""), ".token");
}

/**
 * Mark query and key, and color tokens by their weight.
 * @param {App} app
 * @param {HTMLElement} token
 * @param {Float32Array | null} line the weights of the query; null if the head is off
 * @param {number} most the largest of it
 */
function refresh(app, token, line, most) {
  const { open, store } = app;
  const { query, key } = app.peek ?? store.state;
  const side = token.dataset.side ?? "";
  const shift = shiftOf(app, side);
  const i = Number(token.dataset.i) + shift;
  const answers = open.site.answers === side || shift > 0;
  const weights = answers && line && i < line.length ? line : null;
  const share = weights ? ((0.75 * weights[i]) / most).toFixed(3) : "0";
  const title = token.dataset.chance ? `p = ${shortProbability(Number(token.dataset.chance))}` : weights ? short(weights[i]) : "";
  if (token.style.getPropertyValue("--share") !== share) token.style.setProperty("--share", share);
  const [asks, chosen] = [isAsking(app, side) && i === query, answers && i === key];
  if ((asks || chosen) && !token.matches(".asks, .answers") && !app.peek) reveal(token);
  token.classList.toggle("asks", asks);
  token.classList.toggle("answers", chosen);
  token.tabIndex = asks || chosen || (i === 0 && !isAsking(app, side) && !answers) ? 0 : -1; // one tab stop; arrow keys move
  if (token.title !== title) token.title = title;
}

/**
 * Scroll a token into its line, without moving the page.
 * @param {HTMLElement} token
 */
function reveal(token) {
  const line = /** @type {HTMLElement} */ (token.parentElement);
  if (line.scrollWidth <= line.clientWidth) return;
  const start = token.offsetLeft - line.offsetLeft;
  if (start < line.scrollLeft || start + token.offsetWidth > line.scrollLeft + line.clientWidth) line.scrollLeft = start - line.clientWidth / 3;
}

/**
 * Select a token. As a query, it comes with the key that gets its largest weight.
 * @param {App} app
 * @param {string} side
 * @param {number} i
 */
export async function selectToken(app, side, i) {
  const { store, source } = app;
  app.root.dispatchEvent(new CustomEvent("regard-token", { detail: { of: side, position: i } }));
  const place = await placeOf(app, side, i);
  if (!("query" in place)) return store.set({ ...place, pinned: true });
  const state = { ...store.state, ...place };
  const moves = nameHead(state) !== nameHead(store.state);
  const open = moves ? await openHead({ ...app, store: { state } }).catch(() => null) : app.open;
  if (!open || source !== app.source) return undefined;
  return store.set({ ...place, key: largestKey(open, Math.min(place.query ?? 0, open.site.n_query - 1)), pinned: true, kept: store.state.kept && nameHead(state) });
}

/**
 * Return the selection for a click on a token: query, key, or a site in which it is a query.
 * @param {App} app
 * @param {string} side
 * @param {number} i
 */
async function placeOf({ open, sites, about, source }, side, i) {
  const { site } = open;
  const asking = side === "output" ? "target" : side;
  if (site.asks === asking) return { query: i + shiftOf({ open }, side) };
  if (site.answers === side) return { key: i };
  const others = sites.filter((one) => one.asks === asking);
  const { site: path, head } = others.some((one) => one.path === about.start.site) ? about.start : await mostAligned(source, others);
  const other = others.find((one) => one.path === path);
  return other ? { site: path, head, query: i + shiftOf({ open: { ...open, site: other } }, side) } : {};
}
