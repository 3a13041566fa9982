// The space view: tokens as points before and after attention, with an arrow for each head.

import { el, fill, shape } from "../dom.js";
import { full, plainNumber, short } from "../format.js";
import { tween } from "../motion.js";
import { between, startOf, TRAVEL } from "./space_motion.js";
import { arrowHead, arrowLabel, backdrop, layOut, placeLabels, translate } from "./space_plot.js";
import { tabSeparated } from "./tables.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Space} Space
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("./tables.js").CustomView} CustomView
 * @typedef {import("./tables.js").Handlers} Handlers
 * @typedef {import("./space_plot.js").Point} Point
 */

/** Shorter arrows, in pixels, have no number. */
const MIN_LABELED_ARROW = 13;
/** Special tokens are moved to the edge if the words become this many times as large. */
const CROP_SCALE = 2;
/** Step of the rotation slider, in degrees. */
const STEP = 5;
/** The smallest height of a picture; less than it needs only in low windows. */
const MIN_HEIGHT = 200;

/**
 * The points of each token in the plane.
 * @typedef {object} Projected
 * @property {Point[]} before
 * @property {Point[]} after
 * @property {Point[][]} arrows by head
 * @property {Point[]} rest
 * @property {boolean[]} on which heads are shown
 * @property {number} turn in radians
 */

/**
 * @param {HTMLElement} element
 * @param {App} app
 * @param {Space} space
 * @param {Handlers} act
 * @returns {CustomView}
 */
export function draw(element, app, space, act) {
  const projected = projectSpace(space, app.store.state);
  const tools = headsOf(app, projected, space);
  const room = availableSize(element, projected.arrows.length > 0);
  const { plot, outside } = fitPlane(app, projected, room.plot);
  const picture = shape("svg.space", { width: plot.width, height: plot.height, role: "img", "aria-label": app.t("spaceLabel") });
  const [chain, names] = [shape("g"), shape("g")];
  const magnifier = shape("svg.magnifier", { ...room.magnifier, role: "img", "aria-label": app.t("spacePath") });
  const points = shape("g");
  picture.append(...backdrop(plot, axisNames(app, space, projected)), points, chain, names, ...hitTargets(projected, plot, act));
  fill(element, tools.element, el("div.spaces", { "data-narrow": room.below }, picture, room.magnifier.width ? magnifier : ""), captionOf(app, projected, outside));
  const select = (/** @type {number} */ query) => {
    fill(chain, pathOf(projected, plot, query, { app, names: false }));
    fill(names, placeLabels(plot, projected.after, projected.before, app.open.rows, query));
    fill(magnifier, drawMagnified(projected, query, app, plot.scale, room.magnifier));
    tools.select(query);
  };
  const start = startOf(app, space, projected);
  const show = (/** @type {Projected} */ now) => fill(points, moveArrows(now, plot), dots(now, plot));
  show(projected);
  select(app.store.state.query);
  if (start) {
    picture.setAttribute("aria-busy", "true");
    tween((part) => {
      const now = part < 1 ? between(start, projected, part) : projected; // it ends at the tensors' own numbers
      show(now);
      fill(chain, pathOf(now, plot, app.store.state.query, { app, names: false }));
      if (part === 1) picture.removeAttribute("aria-busy");
    }, TRAVEL);
  }
  return {
    select,
    says: (query) => describe(app, projected, query),
    reads: (query) => readout(app, projected, query),
    table: () => tableOf(app, space),
    data: () => dataOf(app, space),
  };
}

/**
 * Fit the plane to the points; special tokens far from all words are moved to
 * its edge.
 * @param {App} app
 * @param {Projected} projected
 * @param {{ width: number, height: number }} room
 */
function fitPlane({ open }, projected, room) {
  const pointsOf = (/** @type {number} */ i) => [projected.before[i], projected.after[i], endOf(projected, i)];
  const all = Array.from(projected.before.keys());
  const whole = layOut(all.flatMap(pointsOf), room);
  const words = all.filter((i) => !open.rows[i].special);
  const near = words.length > 2 ? layOut(words.flatMap(pointsOf), room) : whole;
  if (near.scale < CROP_SCALE * whole.scale) return { plot: whole, outside: [] };
  const { left, right, top, bottom } = near.inner;
  const isIn = (/** @type {Point} */ { x, y }) => x >= left && x <= right && y >= top && y <= bottom;
  const outside = all.filter((i) => !pointsOf(i).every((point) => isIn(near.at(point))));
  const at = (/** @type {Point} */ point) => {
    const { x, y } = near.at(point);
    return { x: Math.min(right, Math.max(left, x)), y: Math.min(bottom, Math.max(top, y)) };
  };
  return { plot: { ...near, at }, outside: outside.map((i) => open.rows[i].label) };
}

/**
 * Return the sizes of the picture and of the magnifier (below it on narrow screens).
 * @param {HTMLElement} element
 * @param {boolean} magnifier
 */
function availableSize(element, magnifier) {
  const width = element.clientWidth;
  const height = Math.max(MIN_HEIGHT, (element.parentElement?.clientHeight ?? 0) - 78);
  if (!magnifier) return { below: false, plot: { width, height }, magnifier: { width: 0, height: 0 } };
  if (width < 520) return { below: true, plot: { width, height: Math.max(MIN_HEIGHT, Math.min(height, width)) }, magnifier: { width, height: 200 } };
  const side = Math.min(230, Math.floor(width * 0.32));
  return { below: false, plot: { width: width - side - 14, height }, magnifier: { width: side, height: Math.min(height - 40, side + 60) } };
}

/**
 * Draw the path of one token, enlarged.
 * @param {Projected} projected
 * @param {number} query
 * @param {App} app
 * @param {number} scale of the whole picture
 * @param {{ width: number, height: number }} room
 */
function drawMagnified(projected, query, app, scale, { width, height }) {
  const stops = [projected.before[query], projected.after[query]];
  for (const part of partsOf(projected, query)) stops.push(translate(stops.length > 2 ? stops[stops.length - 1] : stops[0], part));
  const plot = layOut(stops, { width, height }, { left: 4, right: 4, top: 28, bottom: 4 });
  return [
    shape("rect.outline", { x: 0.5, y: 0.5, width: width - 1, height: height - 1, rx: 6 }),
    shape("text.sum", { x: 10, y: 18 }, app.t("spaceLarger", { token: app.open.rows[query].label, times: short(plot.scale / scale, 1) })),
    ...pathOf(projected, plot, query, { app, names: true }),
  ];
}

/**
 * @param {Space} space
 * @param {import("../state.js").State} state
 * @returns {Projected}
 */
function projectSpace(space, { heads, spin }) {
  const turn = (spin * Math.PI) / 180;
  const flat = (/** @type {Matrix} */ table) => Array.from({ length: table.rows }, (_, i) => {
    const [x, y, z] = [0, 1, 2].map((axis) => (axis < table.columns ? table.data[i * table.columns + axis] : 0));
    return { x: x * Math.cos(turn) + z * Math.sin(turn), y };
  });
  const chosen = heads === "" ? null : new Set(heads === "none" ? [] : heads.split(",").map(Number));
  const on = space.arrows.map((_, head) => chosen === null || chosen.has(head));
  return { before: flat(space.before), after: flat(space.after), arrows: space.arrows.map(flat), rest: flat(space.rest), on, turn };
}

/** @param {Projected} projected */
function isWhole({ on }) {
  return on.every(Boolean);
}

/**
 * Return the arrows of the visible heads; then the bias if all heads are visible.
 * @param {Projected} projected
 * @param {number} i
 * @returns {{ name: string, by: Point }[]}
 */
function partsOf(projected, i) {
  const heads = projected.arrows.flatMap((arrow, head) => (projected.on[head] ? [{ name: String(head), by: arrow[i] }] : []));
  return isWhole(projected) ? [...heads, { name: projected.arrows.length ? "b" : "", by: projected.rest[i] }] : heads;
}

/**
 * @param {Projected} projected
 * @param {number} i
 * @returns {Point}
 */
function endOf(projected, i) {
  return partsOf(projected, i).reduce(translate, projected.before[i]);
}

/**
 * @param {App} app
 * @param {Space} space
 * @param {Projected} projected
 */
function axisNames({ t }, { share }, { turn }) {
  const across = share[0] * Math.cos(turn) ** 2 + (share[2] ?? 0) * Math.sin(turn) ** 2; // axes are uncorrelated
  const percent = (/** @type {number} */ x) => short(100 * x, 1);
  const first = turn ? "spaceAxes" : "spaceAxis";
  return { x: t(first, { axis: 1, other: 3, share: percent(across) }), y: t("spaceAxis", { axis: 2, share: percent(share[1] ?? 0) }) };
}

/**
 * Draw the total movement of every token as one faint arrow.
 * @param {Projected} projected
 * @param {import("./space_plot.js").Layout} plot
 */
function moveArrows(projected, plot) {
  let [lines, tips] = ["", ""];
  projected.before.forEach((from, i) => {
    const [a, b] = [plot.at(from), plot.at(endOf(projected, i))];
    lines += `M${a.x.toFixed(1)} ${a.y.toFixed(1)}L${b.x.toFixed(1)} ${b.y.toFixed(1)}`;
    tips += arrowHead(a, b, 5);
  });
  return [shape("path.move", { d: lines }), shape("path.movetip", { d: tips })];
}

/**
 * Draw rings before attention and discs after it.
 * @param {Projected} projected
 * @param {import("./space_plot.js").Layout} plot
 */
function dots(projected, plot) {
  const disc = (/** @type {Point[]} */ points, /** @type {number} */ r) => points.map((point) => {
    const { x, y } = plot.at(point);
    return `M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
  }).join("");
  return [shape("path.before", { d: disc(projected.before, 3) }), shape("path.after", { d: disc(projected.after, 3.4) })];
}

/**
 * Draw the path of one token, head by head.
 * @param {Projected} projected
 * @param {import("./space_plot.js").Layout} plot
 * @param {number} query
 * @param {{ app: App, names: boolean }} how
 */
function pathOf(projected, plot, query, { app, names }) {
  const start = projected.before[query];
  const made = [];
  let from = start;
  for (const part of partsOf(projected, query)) {
    const to = translate(from, part);
    const [a, b] = [plot.at(from), plot.at(to)];
    const own = part.name === String(app.open.head) ? ".here" : part.name === "b" ? ".bias" : "";
    made.push(shape(`path.part${own}`, { d: `M${a.x} ${a.y}L${b.x} ${b.y}` }), shape(`path.parttip${own}`, { d: arrowHead(a, b, 7) }));
    if (names && part.name && Math.hypot(b.x - a.x, b.y - a.y) >= MIN_LABELED_ARROW) made.push(arrowLabel(a, b, part.name, own));
    from = to;
  }
  const [first, last, whole] = [plot.at(start), plot.at(from), plot.at(projected.after[query])];
  made.push(shape("circle.before.on", { cx: first.x, cy: first.y, r: 4.5 }), shape("circle.after.on", { cx: whole.x, cy: whole.y, r: 5 }));
  if (!isWhole(projected)) made.push(shape("circle.partial", { cx: last.x, cy: last.y, r: 5 }));
  return made;
}

/**
 * Larger invisible targets around the points.
 * @param {Projected} projected
 * @param {import("./space_plot.js").Layout} plot
 * @param {Handlers} act
 */
function hitTargets(projected, plot, act) {
  return [projected.before, projected.after].flatMap((points) => points.map((point, i) => {
    const { x, y } = plot.at(point);
    return shape("circle.hit", { cx: x, cy: y, r: 9, onpointerenter: () => act.onhover(i, -1), onpointerleave: () => act.onhover(-1, -1), onclick: () => act.onpick(i, -1) });
  }));
}

/**
 * Controls for the visible heads and the rotation.
 * @param {App} app
 * @param {Projected} projected
 * @param {Space} space
 */
function headsOf(app, projected, space) {
  const { t, store } = app;
  const set = (/** @type {boolean[]} */ on) =>
    store.set({ heads: on.every(Boolean) ? "" : on.flatMap((yes, head) => (yes ? [head] : [])).join(",") || "none" });
  const bars = projected.arrows.map(() => el("span.length"));
  const buttons = projected.arrows.map((_, head) =>
    el("button", { "aria-pressed": String(projected.on[head]), "aria-label": t("headName", { head }), title: t("spaceHeadHelp", { head }), onclick: () => set(projected.on.map((yes, i) => (i === head ? !yes : yes))) }, head, bars[head]));
  const only = el("button.quiet", { "aria-pressed": String(isWhole(projected)), onclick: () => set(projected.on.map(() => !isWhole(projected))) }, t("spaceAll"));
  const spin = el("input", { type: "range", min: 0, max: 180, step: STEP, value: store.state.spin, "aria-label": t("spaceTurn"), oninput: () => store.set({ spin: Number(spin.value) }) });
  const choose = buttons.length ? [el("span", {}, t("spaceHeads")), el("div.heads", { role: "group", "aria-label": t("spaceHeads") }, buttons), only] : [];
  const turn = space.share.length > 2 ? el("label", {}, t("spaceTurn"), spin, el("output.digits", {}, `${store.state.spin}°`)) : "";
  return {
    element: el("div.view-tools.tools", {}, choose, turn),
    select: (/** @type {number} */ query) => {
      const sizes = projected.arrows.map((arrow) => Math.hypot(arrow[query].x, arrow[query].y));
      const most = Math.max(...sizes) || 1;
      sizes.forEach((size, head) => (bars[head].style.width = `${Math.round((100 * size) / most)}%`));
    },
  };
}

/**
 * @param {App} app
 * @param {Projected} projected
 * @param {string[]} outside tokens outside the picture
 */
function captionOf({ t, store, about }, projected, outside) {
  const key = (/** @type {string} */ name, /** @type {import("../messages.js").MessageKey} */ word) =>
    el("span.how", {}, shape("svg.key", { width: 14, height: 12, "aria-hidden": "true" }, shape(`circle.${name}`, { cx: 7, cy: 6, r: 3.6 })), t(word));
  return el("figcaption", {},
    key("before", "before"), key("after", "after"), isWhole(projected) ? "" : key("partial", "spacePartial"),
    el("span", {}, t(projected.arrows.length ? "spaceHow" : "spaceHowWhole")),
    outside.length ? el("span", {}, t("spaceOutside", { tokens: outside.join(", ") })) : "",
    store.state.edits.length && !about.live ? el("span", {}, t("withoutEdits")) : "");
}

/**
 * @param {App} app
 * @param {Projected} projected
 * @param {number} query
 */
function describe({ t, open }, projected, query) {
  const term = el("b.term.query", {}, open.rows[query].label);
  const [from, to] = [projected.before[query], projected.after[query]];
  const total = short(Math.hypot(to.x - from.x, to.y - from.y));
  const sizes = projected.arrows.map((arrow) => Math.hypot(arrow[query].x, arrow[query].y));
  const head = sizes.indexOf(Math.max(...sizes));
  return head < 0 ? t.parts("seeMoved", { query: term, total }) : t.parts("seeMovedBy", { query: term, total, head, part: short(sizes[head]) });
}

/**
 * @param {App} app
 * @param {Projected} projected
 * @param {number} query
 */
function readout(app, projected, query) {
  const { t, open } = app;
  const write = app.peek ? full : short;
  const pair = (/** @type {string} */ name, /** @type {Point} */ { x, y }) =>
    el("span.figure", {}, el("i", {}, name), " ", el("b", { title: `${full(x)}, ${full(y)}` }, `(${write(x)}, ${write(y)})`));
  const own = projected.arrows[open.head]?.[query];
  return [
    el("span.who", {}, el("b.term.query", {}, open.rows[query].label)),
    pair(t("before"), projected.before[query]),
    pair(t("after"), projected.after[query]),
    own ? pair(t("spaceAdds", { head: open.head }), own) : "",
  ];
}

/**
 * @param {App} app
 * @param {Space} space
 * @returns {(string | number)[][]}
 */
function linesOf({ open, t }, space) {
  const axes = Array.from({ length: space.share.length }, (_, axis) => axis);
  const tables = [[t("before"), space.before], [t("after"), space.after], ...space.arrows.map((one, head) => [t("headName", { head }), one])];
  const head = tables.flatMap(([name]) => axes.map((axis) => `${name} ${axis + 1}`));
  const lines = open.rows.map((tick, i) =>
    [tick.label, ...tables.flatMap(([, one]) => axes.map((axis) => plainNumber(/** @type {Matrix} */ (one).data[i * axes.length + axis])))]);
  return [["", ...head], ...lines];
}

/**
 * @param {App} app
 * @param {Space} space
 */
function dataOf(app, space) {
  return tabSeparated(linesOf(app, space));
}

/**
 * @param {App} app
 * @param {Space} space
 */
function tableOf(app, space) {
  const [head, ...lines] = linesOf(app, { ...space, arrows: [] });
  return el("table", {}, el("caption", {}, app.t("spaceLabel")),
    el("tr", {}, head.map((name) => (name ? el("th", { scope: "col" }, name) : el("td")))),
    lines.slice(0, 60).map(([name, ...numbers]) => el("tr", {}, el("th", { scope: "row" }, name), numbers.map((x) => el("td", {}, short(Number(x)))))));
}
