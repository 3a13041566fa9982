// The lens: the most probable token after each sub-layer, if the model stopped there.

import { el, fill } from "../dom.js";
import { full, plainNumber, probability, short } from "../format.js";
import { check, radioGroup } from "../radio_group.js";
import { labelOf } from "../tokens.js";
import { stationName } from "./part_names.js";
import { tabSeparated } from "./tables.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Lens} Lens
 * @typedef {import("./tables.js").CustomView} CustomView
 * @typedef {import("./tables.js").Handlers} Handlers
 * @typedef {"probability" | "entropy" | "divergence"} Measure
 */

const MEASURES = /** @type {Measure[]} */ (["probability", "entropy", "divergence"]);
/** The most color of a cell in percent, on which its text can still be read. */
const MOST_COLOR = 62;
const KEYS = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] });

/**
 * @param {HTMLElement} element
 * @param {App} app
 * @param {Lens} first the window that contains the selected position
 * @param {Handlers} act
 * @param {(position: number) => Promise<Lens | null>} load
 * @returns {CustomView}
 */
export function draw(element, app, first, act, load) {
  const { t, store } = app;
  const at = { data: first, station: first.stations.length - 1, measure: /** @type {Measure} */ ("probability") };
  const holder = el("div.lens-table");
  const pages = el("span.lens-pages");
  const details = el("div.lens-details");
  const colors = MEASURES.map((one) => el("button", { role: "radio", "data-choice": one, onclick: () => recolor(one) }, t(`lens_${one}`)));
  const tools = el("div.view-tools.tools", {}, el("span", {}, t("lensColor")), radioGroup(el("div.choice.lens-color", { role: "radiogroup", "aria-label": t("lensColor") }, colors)), pages);
  fill(element, tools, el("figure", {}, holder, details, el("figcaption", {}, t(`lensCaption_${first.norm}`))));
  const column = () => columnOf(at.data, (app.peek ?? store.state).query);
  const pick = (/** @type {number} */ station, /** @type {number} */ position) => {
    at.station = station;
    if (at.data.entries === "tokens") act.onpick(at.data.start + position, -1);
    mark();
  };
  const mark = () => {
    const j = column();
    for (const cell of /** @type {NodeListOf<HTMLElement>} */ (holder.querySelectorAll("td button"))) {
      const [i, k] = [Number(cell.dataset.station), Number(cell.dataset.position)];
      cell.setAttribute("aria-pressed", String(i === at.station && k === j));
      cell.tabIndex = i === at.station && k === j ? 0 : -1;
    }
    fill(details, detailsOf(app, at.data, at.station, j));
  };
  const paint = () => {
    fill(holder, tableOf(app, at.data, at.measure, pick));
    fill(pages, pagesOf(app, at.data, show));
    check(colors, (button) => button.dataset.choice === at.measure);
    mark();
  };
  const recolor = (/** @type {Measure} */ measure) => {
    at.measure = measure;
    paint();
  };
  const show = (/** @type {number} */ position) => {
    app.whileBusy(load(position)).then((data) => {
      if (!data || !element.isConnected) return;
      at.data = data;
      paint();
      app.setPeek(app.peek); // updates the sentence and the numbers
    }, () => undefined); // no server: keep what is shown
  };
  holder.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => moveFocus(event, holder));
  paint();
  return {
    select: (query, _, peek) => {
      const outside = at.data.entries === "tokens" && (query < at.data.start || query >= at.data.start + at.data.positions.length);
      if (outside && !peek) show(query);
      else mark();
    },
    says: () => describe(app, at.data, column()),
    reads: () => numbersOf(app, at.data, at.station, column()),
    table: () => el("p", {}, describe(app, at.data, column())),
    data: () => dataOf(app, at.data),
  };
}

/**
 * Return the column of a position; classes have one.
 * @param {Lens} data
 * @param {number} query
 */
function columnOf(data, query) {
  return data.entries === "classes" ? 0 : Math.min(Math.max(0, query - data.start), data.positions.length - 1);
}

/**
 * @param {App} app
 * @param {Lens} data
 * @param {Measure} measure
 * @param {(station: number, position: number) => void} pick
 */
function tableOf({ t }, data, measure, pick) {
  const heads = data.positions.map((token) => el("th", { scope: "col", title: token }, labelOf(token)));
  const largest = Math.max(1e-9, ...data[measure === "probability" ? "entropy" : measure].flat());
  const rows = data.stations.map((path, i) =>
    el("tr", {}, el("th", { scope: "row", title: path }, stationName(t, path)), data.positions.map((_, j) => {
      const [p, name] = [data.probabilities[i][j][0], nameOf(data, data.ids[i][j][0])];
      const x = measure === "probability" ? p : data[measure][i][j];
      const share = measure === "probability" ? p : x / largest;
      const label = `${stationName(t, path)}, ${labelOf(data.positions[j])}: ${name}, ${t(`lens_${measure}`)} ${numberOf(measure, x)}`;
      const cell = el("button", { "data-station": i, "data-position": j, "aria-label": label, title: `${name}: ${full(x)}`, onclick: () => pick(i, j) },
        el("span.lens-word", {}, name), el("span.digits", {}, numberOf(measure, x)));
      cell.style.setProperty("--share", `${Math.round(MOST_COLOR * share)}%`);
      return el("td", {}, cell);
    })));
  const answers = data.answers.map((id) => el("td", {}, nameOf(data, id)));
  return el("table.lens", {},
    el("caption.visually-hidden", {}, t("lensTable")),
    el("thead", {}, el("tr", {}, el("th", { scope: "row" }, t("lensRead")), heads)),
    el("tbody", {}, rows),
    el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, t("lensAnswer")), answers)));
}

/**
 * @param {Measure} measure
 * @param {number} x
 */
function numberOf(measure, x) {
  return measure === "probability" ? probability(x) : short(x);
}

/**
 * @param {Lens} data
 * @param {number} id
 */
function nameOf(data, id) {
  return labelOf(data.names[id] ?? String(id));
}

/**
 * Buttons for the other positions of a long text.
 * @param {App} app
 * @param {Lens} data
 * @param {(position: number) => void} show
 */
function pagesOf({ t }, data, show) {
  const stop = data.start + data.positions.length;
  if (data.start === 0 && stop >= data.n_positions) return [];
  const button = (/** @type {"lensPrevious" | "lensNext"} */ name, /** @type {string} */ sign, /** @type {number} */ to, /** @type {boolean} */ known) =>
    el("button.icon", { title: t(name), "aria-label": t(name), disabled: !known, onclick: () => show(to) }, sign);
  return [
    button("lensPrevious", "‹", data.start - 1, data.start > 0),
    t("lensPage", { first: String(data.start), last: String(stop - 1), n: String(data.n_positions) }),
    button("lensNext", "›", stop, stop < data.n_positions),
  ];
}

/**
 * The most probable tokens of one cell, and the way to their causes.
 * @param {App} app
 * @param {Lens} data
 * @param {number} station
 * @param {number} j
 */
function detailsOf(app, data, station, j) {
  const { t, store } = app;
  const items = data.ids[station][j].map((id, rank) => {
    const p = data.probabilities[station][j][rank];
    const bar = el("span.bar");
    bar.style.setProperty("--share", `${100 * p}%`);
    return el("li", {}, el("b.lens-word", {}, nameOf(data, id)), el("span.track", { "aria-hidden": "true" }, bar), el("span.digits", { title: full(p) }, probability(p)));
  });
  const answer = nameOf(data, data.answers[j]);
  return [
    el("h3", {}, `${stationName(t, data.stations[station])}: ${t("lensHere")}`),
    el("ol.lens-candidates", {}, items),
    el("button.to-cause", { onclick: () => store.set({ view: "attribution" }) }, t("lensWhy", { token: answer })),
  ];
}

/**
 * Say from which station on the answer comes first.
 * @param {App} app
 * @param {Lens} data
 * @param {number} j
 */
function describe({ t }, data, j) {
  const answer = data.answers[j];
  let from = data.stations.length;
  while (from > 0 && data.ids[from - 1][j][0] === answer) from -= 1;
  const names = { position: el("b.term.query", {}, labelOf(data.positions[j])), answer: el("b", {}, nameOf(data, answer)) };
  if (from === data.stations.length) return t.parts("lensSaysNever", names);
  if (from === 0) return t.parts("lensSaysAlways", names);
  return t.parts("lensSays", { ...names, station: stationName(t, data.stations[from]) });
}

/**
 * @param {App} app
 * @param {Lens} data
 * @param {number} station
 * @param {number} j
 */
function numbersOf({ t }, data, station, j) {
  const figure = (/** @type {string} */ name, /** @type {string} */ text, /** @type {number} */ x) => el("span.figure", {}, el("i", {}, name), " ", el("b", { title: full(x) }, text));
  const [p, entropy, divergence] = [data.answer_probabilities[station][j], data.entropy[station][j], data.divergence[station][j]];
  return [
    el("span.who", {}, stationName(t, data.stations[station])),
    figure(t("lensAnswerProbability"), probability(p), p),
    figure(t("lens_entropy"), t("lensBits", { x: short(entropy) }), entropy),
    figure(t("lens_divergence"), t("lensBits", { x: short(divergence) }), divergence),
  ];
}

/**
 * Move the focus between cells.
 * @param {KeyboardEvent} event
 * @param {HTMLElement} holder
 */
function moveFocus(event, holder) {
  const cell = /** @type {HTMLElement} */ (event.target).closest("td button");
  const [down, right] = KEYS[event.key] ?? [0, 0];
  if (!(cell instanceof HTMLElement) || (!down && !right)) return;
  event.preventDefault();
  event.stopPropagation(); // arrow keys also move the query and the key
  const [i, j] = [Number(cell.dataset.station) + down, Number(cell.dataset.position) + right];
  const next = holder.querySelector(`[data-station="${i}"][data-position="${j}"]`);
  if (!(next instanceof HTMLElement)) return;
  next.click();
  next.focus();
}

/**
 * @param {App} app
 * @param {Lens} data
 */
function dataOf({ t }, data) {
  const cells = (/** @type {number} */ i) => data.positions.map((_, j) => `${nameOf(data, data.ids[i][j][0])} ${plainNumber(data.probabilities[i][j][0])}`);
  return tabSeparated([["", ...data.positions], ...data.stations.map((path, i) => [stationName(t, path), ...cells(i)])]);
}
