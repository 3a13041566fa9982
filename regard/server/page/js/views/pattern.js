// The pattern pane: one head in one of several views, a sentence about it, and exact numbers.

import { el, fill, rememberFocus } from "../dom.js";
import { full, plainNumber, short } from "../format.js";
import { stageOf } from "../head.js";
import { rowAt, otherHead } from "../selection.js";
import { STAGES } from "../source.js";
import { tickAt } from "../tokens.js";
import { draw as drawEfficient } from "./approximation.js";
import { draw as drawAttribution } from "./attribution.js";
import { draw as drawBars } from "./bars.js";
import { drawComparison } from "./compare.js";
import { compareBar } from "./compare_bar.js";
import { clickCell } from "./edit_controls.js";
import { draw as drawGraph } from "./graph.js";
import { draw as drawGrid } from "./grid.js";
import { draw as drawHeat } from "./heatmap.js";
import { draw as drawImage } from "./image.js";
import { caption, explainOverlay, updateCaption } from "./legend.js";
import { draw as drawLens } from "./lens.js";
import { draw as drawLines } from "./lines.js";
import { groupTitle } from "./overview.js";
import { paneHead } from "./pane.js";
import { pin } from "./pin.js";
import { axesOf, isHeatmap, plotOf, plotPlace } from "./plot.js";
import { draw as drawRollout } from "./rollout.js";
import { sentence } from "./sentence.js";
import { draw as drawSpace } from "./space.js";
import { drawWhenLoaded, positionHandlers, accessibleTable } from "./tables.js";
import { toolbar } from "./toolbar.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("./plot.js").Plot} Plot
 * @typedef {import("../source.js").Stage} Stage
 * @typedef {import("./tables.js").CustomView} CustomView
 * @typedef {((query: number, key: number, peek?: boolean) => void) & { repaint?: (plot: Partial<Plot>) => void }} Select
 * @typedef {{ stage: Stage, name: "" | "before" | "after", tables: import("../head.js").Tables }} Figure
 * @typedef {{ figures: Figure[], selects: Select[], open: App["open"] }} Drawn
 */

/** The smallest height of a picture, and the width below which axes have short titles. */
const MIN_HEIGHT = 150;
const CAPTION_HEIGHT = 34;
/** The width that a title keeps when the tools next to it need the rest. */
const MIN_TITLE = 230;
const NARROW = 380;
const REDRAW_ON = ["all", "site", "head", "kept", "edits", "view", "compare", "stage", "turned", "words", "mass", "pane", "heads", "spin", "theme", "size"];

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function pattern(app) {
  const tools = toolbar(app);
  const title = el("div.title");
  const says = el("p.sentence", { "data-says": "" });
  // a picture that is redrawn under the mouse gets no pointerleave event; the board does
  const leave = () => app.peek && app.setPeek(null);
  const board = el("div.board", { onpointerleave: leave, onpointermove: (/** @type {any} */ event) => event.target.closest("svg, canvas") || leave() });
  const reading = el("p.reading");
  const compared = compareBar(app);
  const table = el("div.visually-hidden");
  const element = el("section.pane.pattern", { "aria-label": app.t("pattern") },
    paneHead(app, "pattern", [title, tools.element], () => customView()?.data() ?? dataOf(app)), says, compared.element, board, reading, table);
  element.tabIndex = -1; // the target of the skip link
  element.id = "regard-pattern";
  /** @type {Drawn | null} */
  let last = null;
  /** @type {Select[]} */
  let selects = [];
  let customView = /** @returns {CustomView | null} */ () => null;
  const viewport = { window: null };
  const room = { height: 0 };
  /** @type {App["open"] | null} */
  let drawn = null; // what has not changed is not redrawn: the reader may be about to click on it
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let waiting;
  const update = (/** @type {Set<string>} */ changed) => {
    const zoomed = viewport.window !== null;
    if (changed.has("site") || changed.has("head")) viewport.window = null;
    tools.update();
    compared.update();
    [element.dataset.view, element.dataset.stage] = [app.store.state.view, app.store.state.stage];
    const why = REDRAW_ON.filter((one) => changed.has(one));
    const same = !customView() && drawn?.before === app.open.before && drawn.after === app.open.after;
    if (why.length && !(same && why.every((one) => one === "edits"))) {
      drawn = app.open;
      const refocus = rememberFocus(title);
      if (why.some((one) => one !== "edits")) fill(title, titleOf(app));
      refocus();
      if (["all", "size", "pane", "compare"].some((one) => changed.has(one))) foldTools(element, title, tools, app.store.state.compare !== "");
      const custom = drawCustomView(app, board);
      customView = custom?.view ?? (() => null);
      if (custom || zoomed || !last || !repaintInPlace(app, board, last, why)) {
        room.height = board.clientHeight;
        last = custom ? null : drawBoard(app, board, viewport);
      }
      selects = custom ? [custom.select] : (last?.selects ?? []);
    }
    const at = focusAt(app);
    const view = customView();
    selects.forEach((select) => (view ? select(at.query, at.key, at.peek) : select(at.row, at.column, at.peek)));
    fill(says, view ? view.says(at.query, at.key) : sentence(app, at.query));
    if (changed.has("size") || changed.has("all")) says.style.minHeight = "";
    fill(reading, view ? view.reads(at.query, at.key) : cellReadout(app, at.query, at.key));
    clearTimeout(waiting);
    waiting = setTimeout(() => element.isConnected && fill(table, customView()?.table(at.query) ?? accessibleTable(app)), 200);
  };
  // a shorter sentence must not move the picture
  new ResizeObserver(() => (says.style.minHeight = `${says.offsetHeight}px`)).observe(says);
  new ResizeObserver(() => hasMoved(board, room) && update(new Set(["size"]))).observe(board);
  return { element, update };
}

/**
 * Return whether other bars have changed the height of a board that scrolls.
 * @param {HTMLElement} board
 * @param {{ height: number }} room its size when it was drawn
 */
function hasMoved(board, room) {
  return room.height > 0 && Math.abs(board.clientHeight - room.height) > 4 && getComputedStyle(board).overflowY === "auto";
}

/**
 * Return the hovered cell, or the selected one.
 * @param {App} app
 */
function focusAt(app) {
  const { query, key } = app.peek ?? app.store.state;
  const { rows, columns } = axesOf(app);
  return { query, key, peek: app.peek !== null, row: tickAt(rows, query), column: tickAt(columns, key) };
}

/** @param {App} app */
function titleOf(app) {
  const { site, head } = app.open;
  const step = (/** @type {number} */ by, /** @type {string} */ text) =>
    el("button.icon", { title: app.t(by > 0 ? "nextHead" : "previousHead"), "aria-label": app.t(by > 0 ? "nextHead" : "previousHead"), onclick: () => app.store.set(otherHead(app, by) ?? {}) }, text);
  const name = el("span.site", { title: site.path }, groupTitle(app, site.group));
  const layer = site.layer === null ? "" : el("span", {}, `· ${app.t("layerName", { layer: site.layer })}`);
  if (["lens", "attribution"].includes(app.store.state.view)) return [el("span.site", {}, app.t("lensTitle"))];
  if (app.store.state.view === "rollout") return [name, layer, " · ", el("span.headname", {}, app.t("meanHeads"))];
  return [
    name,
    layer,
    " · ",
    step(-1, "‹"),
    el("span.headname", {}, app.t("headName", { head })),
    step(1, "›"),
    pin(app),
  ];
}

/**
 * Draw a view of more than one head's table; null for other views.
 * @param {App} app
 * @param {HTMLElement} board
 */
function drawCustomView(app, board) {
  const { source, open, store } = app;
  const { path } = open.site;
  const act = positionHandlers(app);
  if (store.state.compare) return drawComparison(app, board);
  switch (store.state.view) {
    case "space":
      return drawWhenLoaded(app, board, source.space(path, store.state.edits), (element, data) => drawSpace(element, app, data, act));
    case "rollout":
      return drawWhenLoaded(app, board, source.rollout(path, store.state.edits), (element, data) => drawRollout(element, app, data, act));
    case "exact":
      return drawWhenLoaded(app, board, source.exact(path, open.head), (element, data) => drawEfficient(element, app, data, act));
    case "lens":
    case "attribution":
      return drawWords(app, board);
    default:
      return null;
  }
}

/**
 * Draw what the residual stream would predict, or which part pushed the answer.
 * @param {App} app
 * @param {HTMLElement} board
 */
function drawWords(app, board) {
  const { source, store, about } = app;
  const { query, edits, view } = store.state;
  const lens = async (/** @type {number} */ position) => (await source.lens?.(edits, position)) ?? null;
  const both = async (/** @type {{ position?: number }} */ place) => {
    const [parts, shown] = await Promise.all([source.attribution?.(edits, place), lens(place.position ?? 0)]);
    return parts && shown ? { parts, lens: shown } : null;
  };
  if (view === "lens") return drawWhenLoaded(app, board, lens(query), (element, data) => drawLens(element, app, data, positionHandlers(app), lens));
  const place = about.output?.classes ? {} : { position: query };
  return drawWhenLoaded(app, board, both(place), (element, data) => drawAttribution(element, app, data, both));
}

/**
 * Return the tables to show: one, three stages, or before and after.
 * @param {App} app
 * @returns {Figure[]}
 */
function figuresOf(app) {
  const { open } = app;
  const { state } = app.store;
  const known = STAGES.filter((stage) => stage === "weights" || open.after[stage]);
  const stage = /** @type {Stage} */ (known.includes(/** @type {any} */ (state.stage)) ? state.stage : "weights");
  const all = state.stage === "all" && state.view !== "image" && !open.large ? known : [stage];
  const edited = open.after !== open.before && state.view !== "bars";
  const versions = edited && !isOverlaid(app, all) ? [open.before, open.after] : [open.after];
  return versions.flatMap((tables, v) => all.map((stage) => ({ tables, stage, name: versions.length > 1 ? (v ? "after" : "before") : "" })));
}

/**
 * Return whether one picture shows both versions. Rings of scores mean negative numbers, so a grid
 * overlays only weights.
 * @param {App} app
 * @param {Stage[]} stages
 */
function isOverlaid(app, stages) {
  const { state } = app.store;
  if (state.split || stages.length > 1 || !["grid", "lines"].includes(state.view)) return false;
  return stages[0] === "weights" || (state.view === "grid" && isHeatmap(axesOf(app)));
}

/**
 * Fold the tools that do not fit next to the title.
 * @param {HTMLElement} element
 * @param {HTMLElement} title
 * @param {ReturnType<typeof toolbar>} tools
 * @param {boolean} compares
 */
function foldTools(element, title, tools, compares) {
  const head = /** @type {HTMLElement | null} */ (element.firstElementChild);
  if (!head?.clientWidth) return;
  const buttons = 2 * 28 + 5 * 10;
  const site = title.querySelector(".site");
  const whole = title.scrollWidth + (site ? site.scrollWidth - site.clientWidth : 0);
  if (compares && matchMedia("(max-height: 500px)").matches) tools.fold(0); // low.css puts the choices of the comparison there
  else tools.fold(head.clientWidth - whole - buttons, Math.max(0, whole - MIN_TITLE));
}

/**
 * Draw all figures; return the functions that move their selections.
 * @param {App} app
 * @param {HTMLElement} board
 * @param {{ window: any }} viewport
 * @returns {Drawn}
 */
function drawBoard(app, board, viewport) {
  const figures = figuresOf(app);
  const stages = new Set(figures.map((one) => one.stage)).size;
  const across = Math.max(1, Math.min(figures.length, Math.floor(board.clientWidth / (stages > 1 ? 190 : 240)) || 1, stages > 1 ? stages : 2));
  const down = Math.ceil(figures.length / across);
  const room = { alone: figures.length === 1, width: Math.floor((board.clientWidth - 16 * (across - 1)) / across), height: Math.max(MIN_HEIGHT, Math.floor(board.clientHeight / down) - CAPTION_HEIGHT) };
  const frames = figures.map((one) => el(one.name ? "figure.named" : "figure", {}, plotPlace(app), caption(app, one)));
  board.style.setProperty("--across", String(across));
  fill(board, frames);
  const selects = figures.map((figure, i) => {
    const plot = { ...shownPlot(app, figure), ...room, ...mouseHandlers(app), onoverlay: (/** @type {any} */ how) => explainOverlay(app, frames[i], figure.stage, how) };
    /** @type {HTMLElement} */ (frames[i].firstElementChild).style.maxHeight = `${room.height}px`;
    if (room.width < (room.alone ? 300 : NARROW)) Object.assign(plot, { asks: app.t("queriesShort"), answers: app.t("keysShort") });
    return drawOne(app, /** @type {Element} */ (frames[i].firstElementChild), plot, viewport);
  });
  return { figures, selects, open: app.open };
}

/**
 * Return the plot of a figure; if it shows both versions, with the numbers before the edits.
 * @param {App} app
 * @param {Figure} figure
 */
function shownPlot(app, { tables, stage, name }) {
  const { open } = app;
  const plot = plotOf(app, tables, stage);
  if (name || open.after === open.before || !isOverlaid(app, [stage])) return { ...plot, before: undefined };
  const { table, kept, off, range } = plotOf(app, open.before, stage);
  return { ...plot, range: /** @type {[number, number]} */ ([Math.min(range[0], plot.range[0]), Math.max(range[1], plot.range[1])]), before: { table, kept, off } };
}

/**
 * Repaint the pictures if only colors change, as while a slider moves or the next head is opened.
 * Return false if more has to be drawn.
 * @param {App} app
 * @param {HTMLElement} board
 * @param {Drawn} last
 * @param {string[]} why
 */
function repaintInPlace(app, board, last, why) {
  const { open } = app;
  const figures = figuresOf(app);
  const same = figures.length === last.figures.length && figures.every(({ stage, name }, i) => stage === last.figures[i].stage && name === last.figures[i].name);
  const named = open.rows === last.open.rows && open.columns === last.open.columns;
  const only = why.every((one) => ["site", "head", "edits"].includes(one));
  if (!same || !named || !only || open.large || last.selects.some((select) => !select.repaint)) return false;
  const captions = board.querySelectorAll("figcaption");
  figures.forEach((figure, i) => {
    if (figure.tables === last.figures[i].tables) return;
    const { table, range, off, edited, allowed, kept, before } = shownPlot(app, figure);
    last.selects[i].repaint?.({ table, range, off, edited, allowed, kept, before });
    updateCaption(app, captions[i], figure);
  });
  Object.assign(last, { figures, open });
  return true;
}

/**
 * @param {App} app
 * @param {Element} element
 * @param {Plot} plot
 * @param {{ window: any }} viewport
 * @returns {Select}
 */
function drawOne(app, element, plot, viewport) {
  const { open, store, source } = app;
  const { view } = store.state;
  if (open.large) {
    return drawHeat(element, plot, viewport, (rows, columns) => source.tile(open.site.path, open.head, plot.stage, rows, columns));
  }
  if (view === "lines") return drawLines(element, plot);
  if (view === "graph") return drawGraph(element, plot, open.site.asks !== null && open.site.asks === open.site.answers);
  if (view === "bars") {
    const before = open.after !== open.before ? { ...plotOf(app, open.before, plot.stage), ...plot, ...{ table: plotOf(app, open.before, plot.stage).table } } : null;
    return drawBars(element, plot, before);
  }
  if (view === "image") return drawImage(element, plot, /** @type {import("../source.js").Picture} */ (app.about.image));
  if (isHeatmap(plot)) return drawHeat(element, plot, viewport);
  return drawGrid(element, plot);
}

/** @param {App} app */
function mouseHandlers(app) {
  const ticks = () => axesOf(app);
  return {
    onhover: (/** @type {number} */ i, /** @type {number} */ j) => {
      if (i < 0 && j < 0) return app.setPeek(null);
      const { rows, columns } = ticks();
      const query = rows[i]?.first ?? app.store.state.query;
      const key = columns[j]?.first ?? app.store.state.key;
      if (app.peek?.query === query && app.peek.key === key) return undefined;
      return app.setPeek({ query, key });
    },
    onpick: (/** @type {number} */ i, /** @type {number} */ j) => {
      const { rows, columns } = ticks();
      clickCell(app, rows[i]?.first ?? -1, columns[j]?.first ?? -1);
    },
  };
}

/**
 * Return the exact numbers of one cell.
 * @param {App} app
 * @param {number} query
 * @param {number} key
 */
function cellReadout(app, query, key) {
  const { open, t } = app;
  const [after, before] = [rowAt(app, query), rowAt(app, query, "before")];
  const figure = (/** @type {Stage} */ stage) => {
    const off = open.after.off && stage === "weights"; // nothing is taken from any key
    const [x, old] = [off ? 0 : stageOf(after, stage).data[key], stageOf(before, stage).data[key]];
    const was = open.after !== open.before && old !== x ? [el("s", { title: full(old) }, short(old)), " → "] : [];
    return el(`span.figure.${stage}`, {}, el("i", {}, t(/** @type {const} */ ({ scores: "score", masked: "maskedScore", weights: "weight" })[stage])), " ", ...was, el("b", { title: full(x) }, app.peek ? full(x) : short(x)));
  };
  const stages = STAGES.filter((stage) => open.after[stage]);
  return [
    el("span.who", {}, el("b.term.query", {}, open.rows[query].label), " → ", el("b.term.key", {}, open.columns[key].label)),
    ...stages.map(figure),
    app.store.state.pinned ? el("span.pin", { title: t("keyUnpin") }, t("pinned")) : "",
  ];
}

/** @param {App} app */
function dataOf(app) {
  const { state } = app.store;
  const stage = state.stage === "all" ? "weights" : state.stage;
  const { table, rows, columns } = plotOf(app, app.open.after, /** @type {Stage} */ (stage));
  const head = ["", ...columns.map((tick) => tick.label)];
  const lines = rows.map((tick, i) => [tick.label, ...Array.from(table.data.subarray(i * columns.length, (i + 1) * columns.length), plainNumber)]);
  return [head, ...lines].map((line) => line.join("\t")).join("\n");
}
