// A comparison: two heads next to each other with linked selections, or one grid of their difference.

import { CannotCompare, haveSameShape, loadSides, placeInSecond } from "../compare_sides.js";
import { differenceOf, readComparison, writeComparison } from "../compare_spec.js";
import { el, fill } from "../dom.js";
import { full, plainNumber, short } from "../format.js";
import { stageOf } from "../head.js";
import { largest, row } from "../matrix.js";
import { check, radioGroup } from "../radio_group.js";
import { answerLines } from "./compare_answers.js";
import { drawPair, showsPictures } from "./compare_grid.js";
import { patchControls } from "./compare_patch.js";
import { photoOf } from "./image.js";
import { drawWhenLoaded, positionHandlers, tabSeparated } from "./tables.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../compare_sides.js").Sides} Sides
 * @typedef {import("../compare_sides.js").Side} Side
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("../source.js").Stage} Stage
 * @typedef {import("./tables.js").CustomView} CustomView
 */

const MAX_ROWS = 60;

/**
 * Draw the comparison of the state; null if there is none.
 * @param {App} app
 * @param {HTMLElement} board
 */
export function drawComparison(app, board) {
  const spec = readComparison(app.store.state.compare);
  if (!spec) return null;
  const loading = loadSides(app, spec).catch((error) => {
    if (error instanceof CannotCompare) return error;
    throw error;
  });
  return drawWhenLoaded(app, board, loading, (element, found) => (found instanceof CannotCompare ? refusal(app, element, found) : draw(element, app, found)));
}

/**
 * @param {App} app
 * @param {HTMLElement} element
 * @param {CannotCompare} error
 * @returns {CustomView}
 */
function refusal({ t }, element, { reason, values }) {
  const text = t(reason, values);
  fill(element, el("p.note", {}, text));
  return { select: () => undefined, says: () => [], reads: () => [], table: () => el("p", {}, text), data: () => text };
}

/**
 * @param {HTMLElement} element
 * @param {App} app
 * @param {Sides} sides
 * @returns {CustomView}
 */
function draw(element, app, sides) {
  const stage = stageFor(app, sides);
  const tables = [sides.first, sides.second].map((side) => stageOf(side.tables, stage));
  const difference = haveSameShape(sides) ? differenceOf(tables[0], tables[1]) : null;
  const patch = patchControls(app, sides);
  const tools = el("div.view-tools.tools", {}, el("span.compare-modes", {}, modes(app, sides), app.about.image ? placesOf(app) : null), patch?.element, el("span.note.linked", {}, noteOf(app, sides)));
  const place = el("div.compare-figures");
  fill(element, tools, place);
  const only = sides.spec.difference && difference ? difference : null;
  const answers = answerLines(app, sides);
  const names = [headingOf(app, sides, "first"), headingOf(app, sides, "second")];
  const heads = names.map((name, i) => el("div.compare-head", {}, name, answers[i]));
  const select = drawPair(place, app, { sides, stage, tables, difference: only, heads, act: positionHandlers(app) });
  return {
    select: (query, key, peek) => {
      if (!peek) patch?.update();
      select(query, key, peek);
    },
    says: (query) => describe(app, sides, query),
    reads: (query, key) => readout(app, sides, tables, stage, query, key),
    table: (query) => tableOf(app, sides, query),
    data: () => dataOf(app, sides, tables),
  };
}

/**
 * Return the stage that both sides have.
 * @param {App} app
 * @param {Sides} sides
 * @returns {Stage}
 */
function stageFor({ store }, { first, second }) {
  const { stage } = store.state;
  return stage !== "all" && first.tables[stage] && second.tables[stage] ? stage : "weights";
}

/**
 * Two grids, or one of the difference.
 * @param {App} app
 * @param {Sides} sides
 */
function modes({ t, store }, sides) {
  const possible = haveSameShape(sides);
  const { first, second, spec } = sides;
  const size = (/** @type {Side} */ { site }) => `${site.n_query} × ${site.n_key}`;
  const choose = (/** @type {boolean} */ difference) => store.set({ compare: writeComparison({ ...spec, difference }) });
  const buttons = [
    el("button", { role: "radio", "data-choice": "two", onclick: () => choose(false) }, t("compareTwo")),
    el("button", { role: "radio", "data-choice": "difference", disabled: !possible, title: possible ? "" : t("compareNoDifference", { a: size(first), b: size(second) }), onclick: () => possible && choose(true) }, t("compareDifference")),
  ];
  check(buttons, (button) => (button.dataset.choice === "difference") === Boolean(spec.difference && possible));
  return radioGroup(el("div.choice.compare-mode", { role: "radiogroup", "aria-label": t("compareMode") }, buttons));
}

/**
 * Weights on the images, for one query, or as a grid of all queries.
 * @param {App} app
 */
function placesOf({ t, store }) {
  const buttons = /** @type {const} */ ([["image", "comparePicture"], ["grid", "compareGrid"]]).map(([view, word]) =>
    el("button", { role: "radio", "data-choice": view, onclick: () => store.set({ view }) }, t(word)));
  check(buttons, (button) => (button.dataset.choice === "image") === (store.state.view === "image"));
  return radioGroup(el("div.choice.compare-mode.compare-place", { role: "radiogroup", "aria-label": t("view") }, buttons));
}

/**
 * Say how positions correspond, and what the reader may not expect.
 * @param {App} app
 * @param {Sides} sides
 */
function noteOf({ t, store }, { spec, first, second, rows, columns, moved }) {
  const notes = [t(rows.by === "token" || columns.by === "token" ? "compareByToken" : "compareByPosition")];
  if (moved) notes.push(t("compareOtherHead", { head: headName(t, second) }));
  if (spec.kind === "edited" && !store.state.edits.length) notes.push(t("compareNoEdits"));
  const [here, there] = [first.about.asked, second.about.asked];
  const alike = here?.text === there?.text && here?.image === there?.image && here?.model === there?.model;
  if (alike && spec.kind === "text") notes.push(t("compareSameText"));
  if (alike && spec.kind === "image") notes.push(t("compareSameImage"));
  return notes.join(" ");
}

/**
 * @param {App["t"]} t
 * @param {Side} side
 */
function headName(t, { site, head }) {
  return site.layer === null ? t("headName", { head }) : `${site.path.split(".")[0]} · ${t("layerHead", { layer: site.layer, head })}`;
}

/**
 * @param {App} app
 * @param {Sides} sides
 * @param {"first" | "second"} which
 */
function headingOf(app, sides, which) {
  const { image } = sides[which].about;
  const photo = image && !showsPictures(app) ? photoOf(image) : null;
  if (photo) photo.className = "thumbnail";
  return el("h3", { title: sides[which].about.asked?.text ?? "" }, el("span.side-number", {}, which === "first" ? "1" : "2"), " ", photo, nameOf(app, sides, which));
}

/**
 * Return what is special about a side.
 * @param {App} app
 * @param {Sides} sides
 * @param {"first" | "second"} which
 */
function nameOf({ t, store }, { spec, first, second, images }, which) {
  const side = which === "first" ? first : second;
  if (spec.kind === "edited") return t(which === "first" ? "before" : "after");
  if (spec.kind === "head") return headName(t, side);
  if (spec.kind === "run" && which === "second") return `${spec.run} · ${t("compareStep", { step: spec.step ?? 0 })}`;
  if (spec.kind === "run") return side.about.title || t("compareFirst");
  const edited = which === "first" && store.state.edits.length ? ` (${t("compareAfterEdits")})` : "";
  const picture = side.about.image ? images[which === "first" ? 0 : 1] || t("compareOwnImage") : undefined;
  const [text, other] = [side, side === first ? second : first].map((one) => picture ?? one.about.asked?.text ?? one.about.title);
  return `${spec.kind === "model" || spec.model ? `${side.about.title}: ${text}` : fromDifference(text, other)}${edited}`;
}

/** Longer beginnings that two sentences share are left out of their names. */
const MAX_SHARED = 24;

/**
 * Return a sentence from a little before the first word that differs.
 * @param {string} text
 * @param {string} other
 */
function fromDifference(text, other) {
  const [words, others] = [text.split(" "), other.split(" ")];
  const differs = words.findIndex((word, i) => word !== others[i]);
  const shared = words.slice(0, Math.max(0, differs - 4)).join(" ");
  return differs > 0 && shared.length > MAX_SHARED ? `… ${text.slice(shared.length).trim()}` : text;
}

/**
 * Say where both sides look.
 * @param {App} app
 * @param {Sides} sides
 * @param {number} query of the first side
 */
function describe({ t }, sides, query) {
  const { first, second } = sides;
  const other = sides.rows.to[query] ?? -1;
  const term = (/** @type {string} */ role, /** @type {string} */ label) => el(`b.term.${role}`, {}, label);
  const most = (/** @type {Side} */ side, /** @type {number} */ i) => {
    const line = row(side.tables.weights, i);
    const x = side.tables.off ? 0 : largest(line);
    return { key: term("key", side.columns[Math.max(0, line.indexOf(largest(line)))].label), x: short(x) };
  };
  const [here, asker] = [most(first, query), term("query", first.rows[query].label)];
  if (other < 0) return t.parts("compareSeesNoMatch", { query: asker, ...here });
  const there = most(second, other);
  return t.parts("compareSees", { query: asker, ...here, other: there.key, y: there.x });
}

/**
 * Return the numbers of a cell on both sides, NaN where the second has none.
 * @param {Sides} sides
 * @param {Matrix[]} tables
 * @param {number} query
 * @param {number} key
 */
function cellOf(sides, tables, query, key) {
  const other = placeInSecond(sides, query, key);
  const second = other.query < 0 || other.key < 0 ? NaN : row(tables[1], other.query)[other.key];
  return { x: row(tables[0], query)[key], y: second };
}

/**
 * @param {App} app
 * @param {Sides} sides
 * @param {Matrix[]} tables
 * @param {Stage} stage
 * @param {number} query
 * @param {number} key
 */
function readout(app, sides, tables, stage, query, key) {
  const { t } = app;
  const { x, y } = cellOf(sides, tables, query, key);
  const write = app.peek ? full : short;
  const figure = (/** @type {string} */ kind, /** @type {string} */ name, /** @type {number} */ value) => el(`span.figure.${kind}`, {}, el("i", {}, name), " ", el("b", { title: full(value) }, write(value)));
  const of = t(/** @type {const} */ ({ scores: "score", masked: "maskedScore", weights: "weight" })[stage]);
  return [
    el("span.who", {}, el("b.term.query", {}, sides.first.rows[query].label), " → ", el("b.term.key", {}, sides.first.columns[key].label)),
    figure("first", `1 ${of}`, x), figure("second", `2 ${of}`, y), figure("difference", t("compareDifferenceTitle"), y - x),
  ];
}

/**
 * @param {App} app
 * @param {Sides} sides
 * @param {number} query
 */
function tableOf({ t }, sides, query) {
  const tables = [sides.first.tables.weights, sides.second.tables.weights];
  const line = row(tables[0], query);
  const order = Array.from(line.keys()).sort((a, b) => line[b] - line[a]).slice(0, MAX_ROWS);
  const body = order.map((key) => {
    const { x, y } = cellOf(sides, tables, query, key);
    return el("tr", {}, el("th", { scope: "row" }, sides.first.columns[key].label), [x, y, y - x].map((value) => el("td", {}, short(value))));
  });
  const head = el("tr", {}, el("td"), [t("compareFirst"), t("compareSecond"), t("compareDifference")].map((name) => el("th", { scope: "col" }, name)));
  return el("table", {}, el("caption", {}, t("compareTable", { query: sides.first.rows[query].label })), head, body);
}

/**
 * @param {App} app
 * @param {Sides} sides
 * @param {Matrix[]} tables
 */
function dataOf({ t }, sides, tables) {
  const { first } = sides;
  const lines = first.rows.flatMap((asks, i) => first.columns.map((answers, j) => {
    const { x, y } = cellOf(sides, tables, i, j);
    return [asks.label, answers.label, plainNumber(x), plainNumber(y)];
  }));
  return tabSeparated([[t("queriesShort"), t("keysShort"), t("compareFirst"), t("compareSecond")], ...lines]);
}

