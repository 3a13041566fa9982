// The pictures of a comparison: two grids whose scrolling and hovering are linked, or one difference.

import { placeInSecond } from "../compare_sides.js";
import { el, fill, shape } from "../dom.js";
import { full, probability, short } from "../format.js";
import { rangeOf, row } from "../matrix.js";
import { draw as drawGrid } from "./grid.js";
import { draw as drawHeat } from "./heatmap.js";
import { draw as drawImage, fullTone } from "./image.js";
import { isHeatmap, plotPlace, shortened } from "./plot.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../compare_sides.js").Sides} Sides
 * @typedef {import("../compare_sides.js").Side} Side
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("../source.js").Stage} Stage
 * @typedef {import("./tables.js").Handlers} Handlers
 * @typedef {import("./plot.js").Plot} Plot
 */

/**
 * @typedef {object} Given
 * @property {Sides} sides
 * @property {Stage} stage
 * @property {Matrix[]} tables of both sides
 * @property {Matrix | null} difference drawn instead of both
 * @property {HTMLElement[]} heads name and answer of each side
 * @property {Handlers} act handlers of the first side
 */

/** Below this width for each picture, they are stacked. */
const MIN_WIDTH = 250;
const MIN_HEIGHT = 200;
const GAP = 16;
/** The largest disc means at least this difference, so that noise stays small. */
const LEAST_DIFFERENCE = 0.05;
/** The space of names, answers and captions, in pixels. */
const TEXT_HEIGHT = 80;
/** The share of the board for each picture of a stack, which scrolls. */
const STACKED_SHARE = 0.7;
const NARROW = 380;

/**
 * Draw both sides or their difference; return the function that moves the selections.
 * @param {HTMLElement} element
 * @param {App} app
 * @param {Given} given
 * @returns {(query: number, key: number, peek?: boolean) => void}
 */
export function drawPair(element, app, given) {
  const { difference, heads } = given;
  const board = /** @type {HTMLElement} */ (element.closest(".board"));
  const across = !difference && board.clientWidth >= 2 * MIN_WIDTH + GAP ? 2 : 1;
  const tools = element.offsetTop - board.offsetTop;
  const width = Math.floor((board.clientWidth - GAP * (across - 1)) / across);
  const stacked = across === 1 && !difference;
  const room = { width, height: Math.max(MIN_HEIGHT, stacked ? Math.floor(STACKED_SHARE * board.clientHeight) : board.clientHeight - tools - TEXT_HEIGHT) };
  element.style.setProperty("--across", String(across));
  if (difference) return drawDifference(element, app, given, difference, room);
  const figures = heads.map((head, i) => el("figure", { "data-side": i ? "second" : "first" }, head, plotPlace(app), el("figcaption", {}, rangeText(app, given, i))));
  fill(element, el("div.side-by-side", { style: { "--across": across } }, figures));
  const places = figures.map((figure) => /** @type {HTMLElement} */ (figure.querySelector(".plot")));
  const act = linkHover(app, given, (query, key) => selects[1](query, key, true));
  const low = given.tables.map((table) => rangeOf(table));
  const range = /** @type {[number, number]} */ ([Math.min(low[0][0], low[1][0]), Math.max(low[0][1], low[1][1])]);
  const viewport = { window: null };
  const selects = [given.sides.first, given.sides.second].map((side, i) => drawSide(places[i], plotOfSide(app, side, given, { table: given.tables[i], range, room, act: act[i] }), viewport, pictureOf(app, side, given, i)));
  linkScrolling(places);
  return (query, key, peek = false) => {
    const other = placeInSecond(given.sides, query, key);
    selects[0](query, key, peek);
    selects[1](other.query, other.key, peek);
  };
}

/**
 * @param {HTMLElement} element
 * @param {App} app
 * @param {Given} given
 * @param {Matrix} difference
 * @param {{ width: number, height: number }} room
 */
function drawDifference(element, app, given, difference, room) {
  const { t } = app;
  const range = rangeOf(difference);
  const most = Math.max(LEAST_DIFFERENCE, ...range.map(Math.abs));
  const place = plotPlace(app);
  const legend = el("figcaption", {}, el("b", {}, t("compareDifferenceTitle")), el("span.range", { title: `${full(range[0])} … ${full(range[1])}` }, `${signed(range[0])} … ${signed(range[1])}`), signKey(most), el("span", {}, t("compareDifferenceKey")));
  fill(element, el("div.compare-heads", {}, given.heads.map((head, i) => el("div", { "data-side": i ? "second" : "first" }, head))), el("figure.difference", {}, place, legend));
  const high = Math.max(MIN_HEIGHT, room.height + (showsPictures(app) ? 45 : -30)); // its pictures have short notes
  const plot = plotOfSide(app, given.sides.first, given, { table: difference, range: [-most, most], room: { ...room, height: high }, act: given.act });
  // both are masked: nothing differs
  const { first, second } = given.sides;
  const picture = showsPictures(app) ? { image: first.about.image, compared: { other: second.about.image ?? undefined } } : null;
  const select = drawSide(place, { ...plot, stage: "scores", off: false, allowed: null }, { window: null }, picture);
  return (/** @type {number} */ query, /** @type {number} */ key, peek = false) => select(query, key, peek);
}

/** @param {number} x */
function signed(x) {
  return x < 0 ? `−${probability(-x)}` : probability(x);
}

/**
 * A legend of signs: discs and rings.
 * @param {number} most
 */
function signKey(most) {
  const made = shape("svg.key", { width: 132, height: 18, "aria-hidden": "true" });
  made.append(shape("circle.positive", { cx: 8, cy: 9, r: 7 }), shape("text.sum", { x: 19, y: 9, dy: "0.35em" }, `+${short(most)}`),
    shape("circle.negative", { cx: 74, cy: 9, r: 6.2 }), shape("text.sum", { x: 85, y: 9, dy: "0.35em" }, short(-most)));
  return made;
}

/**
 * @param {App} app
 * @param {Given} given
 * @param {number} i
 */
function rangeText({ t }, { tables, stage }, i) {
  const range = rangeOf(tables[i]);
  return [el("span", {}, t(stage)), el("span.range", { title: `${full(range[0])} … ${full(range[1])}` }, `${short(range[0])} … ${short(range[1])}`)];
}

/**
 * @param {App} app
 * @param {Side} side
 * @param {Given} given
 * @param {{ table: Matrix, range: [number, number], room: { width: number, height: number }, act: Handlers }} picture
 * @returns {Plot}
 */
function plotOfSide({ t, store }, side, { sides, stage }, { table, range, room, act }) {
  const { query, key, turned } = store.state;
  const at = side === sides.first ? { query, key } : placeInSecond(sides, query, key);
  const narrow = room.width < NARROW;
  const clip = (/** @type {import("../tokens.js").Tick} */ tick) => (narrow ? { ...tick, label: shortened(tick.label, 9) } : tick);
  return {
    ...{ table, stage, range, turned, t, ...room, ...act, ...at },
    ...{ rows: side.rows.map(clip), columns: side.columns.map(clip) },
    ...{ allowed: side.tables.allowed, off: side.tables.off, kept: null, edited: null, alone: false },
    ...{ asks: t(narrow ? "queriesShort" : "queriesAxis"), answers: t(narrow ? "keysShort" : "keysAxis") },
  };
}

/** @typedef {{ image: import("../source.js").Picture | null, compared: import("./image.js").Compared }} SidePicture */

/**
 * Return whether weights are shown on the images.
 * @param {App} app
 */
export function showsPictures({ about, store }) {
  return about.image !== null && store.state.view === "image";
}

/**
 * Return the image of a side, on which a color means the same weight as on the other; null for a grid.
 * @param {App} app
 * @param {Side} side
 * @param {Given} given
 * @param {number} i
 * @returns {SidePicture | null}
 */
function pictureOf(app, { about: { image } }, { sides, tables }, i) {
  if (!image || !showsPictures(app)) return null;
  const partner = [sides.rows.to, sides.rows.from][i];
  const lines = (/** @type {number} */ query) => [row(tables[i], query), ...(partner[query] >= 0 ? [row(tables[1 - i], partner[query])] : [])];
  return { image, compared: { tone: (query) => Math.max(...lines(query).map((line) => fullTone(line.subarray(image.first)))) } };
}

/**
 * @param {HTMLElement} place
 * @param {Plot} plot
 * @param {{ window: any }} viewport
 * @param {SidePicture | null} picture
 */
function drawSide(place, plot, viewport, picture) {
  if (picture?.image) return drawImage(place, plot, picture.image, picture.compared);
  place.style.maxHeight = `${plot.height}px`;
  return isHeatmap(plot) ? drawHeat(place, plot, viewport) : drawGrid(place, plot);
}

/**
 * Return the handlers of both sides. A cell of the second side that has no partner is only marked there.
 * @param {App} app
 * @param {Given} given
 * @param {(query: number, key: number) => void} markSecond
 * @returns {Handlers[]}
 */
function linkHover(app, { sides, act }, markSecond) {
  const back = (/** @type {number} */ query, /** @type {number} */ key) => ({ query: query < 0 ? -1 : sides.rows.from[query], key: key < 0 ? -1 : sides.columns.from[key] });
  const second = {
    onhover: (/** @type {number} */ query, /** @type {number} */ key) => {
      const at = back(query, key);
      const alone = (query >= 0 && at.query < 0) || (key >= 0 && at.key < 0);
      if (!alone) return act.onhover(at.query, at.key);
      if (app.peek) app.setPeek(null);
      return markSecond(query, key);
    },
    onpick: (/** @type {number} */ query, /** @type {number} */ key) => {
      const at = back(query, key);
      if (at.query >= 0 || at.key >= 0) act.onpick(at.query, at.key);
    },
  };
  return [act, second];
}

/**
 * Scroll both pictures together, in proportion to what each can scroll.
 * @param {HTMLElement[]} places
 */
function linkScrolling(places) {
  const share = (/** @type {number} */ at, /** @type {number} */ size, /** @type {number} */ seen) => (size > seen ? at / (size - seen) : 0);
  /** @type {HTMLElement | null} */
  let moved = null; // by the other one
  places.forEach((place, i) => {
    const other = places[1 - i];
    place.addEventListener("scroll", () => {
      if (moved === place) {
        moved = null;
        return;
      }
      const left = share(place.scrollLeft, place.scrollWidth, place.clientWidth) * (other.scrollWidth - other.clientWidth);
      const top = share(place.scrollTop, place.scrollHeight, place.clientHeight) * (other.scrollHeight - other.clientHeight);
      if (Math.abs(other.scrollLeft - left) < 1 && Math.abs(other.scrollTop - top) < 1) return;
      moved = other;
      other.scrollTo({ left, top, behavior: "instant" });
    }, { passive: true });
  });
}
