// Tokens as points, before and after attention, and the arrows by which its heads move them.

import { el, fill, shape } from "../dom.js";
import { full, plainNumber, short } from "../format.js";
import { backdrop, follow, label, layOut, placeLabels, tip } from "./space_plot.js";
import { tabbed } from "./tables.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Space} Space
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("./tables.js").Own} Own
 * @typedef {import("./tables.js").Act} Act
 * @typedef {import("./space_plot.js").Point} Point
 */

/** Arrows shorter than this many pixels have no number beside them. */
const TOLD = 13;
/** So many times as large must words become for special tokens to be left at the edge. */
const FAR = 2;
/** Steps of the slider that turns the space, in degrees. */
const STEP = 5;

/**
 * What is drawn of each token: where it starts, each part of its way, where it ends.
 * @typedef {object} Seen
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
 * @param {Act} act
 * @returns {Own}
 */
export function draw(element, app, space, act) {
  const seen = seenFrom(space, app.store.state);
  const tools = headsOf(app, seen, space);
  const room = roomIn(element, seen.arrows.length > 0);
  const { plot, outside } = planeOf(app, seen, room.plot);
  const picture = shape("svg.space", { width: plot.width, height: plot.height, role: "img", "aria-label": app.say("spaceLabel") });
  const [chain, names] = [shape("g"), shape("g")];
  const glass = shape("svg.glass", { ...room.glass, role: "img", "aria-label": app.say("spaceWay") });
  picture.append(...backdrop(plot, axisNames(app, space, seen)), ...movesOf(seen, plot), ...dots(seen, plot), chain, names, ...targets(seen, plot, act));
  fill(element, tools.element, el("div.spaces", { "data-narrow": room.below }, picture, room.glass.width ? glass : ""), captionOf(app, seen, outside));
  const select = (/** @type {number} */ query) => {
    fill(chain, wayOf(seen, plot, query, { app, names: false }));
    fill(names, placeLabels(plot, seen.after, seen.before, app.open.rows, query));
    fill(glass, magnified(seen, query, app, plot.scale, room.glass));
    tools.select(query);
  };
  select(app.store.state.query);
  return {
    select,
    says: (query) => saying(app, seen, query),
    reads: (query) => reading(app, seen, query),
    table: () => tableOf(app, space),
    data: () => dataOf(app, space),
  };
}

/**
 * The plane as large as its points need; special tokens that stand far from all words are left at
 * its edge.
 * @param {App} app
 * @param {Seen} seen
 * @param {{ width: number, height: number }} room
 */
function planeOf({ open }, seen, room) {
  const pointsOf = (/** @type {number} */ i) => [seen.before[i], seen.after[i], endOf(seen, i)];
  const all = Array.from(seen.before.keys());
  const whole = layOut(all.flatMap(pointsOf), room);
  const words = all.filter((i) => !open.rows[i].special);
  const near = words.length > 2 ? layOut(words.flatMap(pointsOf), room) : whole;
  if (near.scale < FAR * whole.scale) return { plot: whole, outside: [] };
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
 * The picture, and a glass beside it (below it on narrow screens) for the way of one token.
 * @param {HTMLElement} element
 * @param {boolean} glass
 */
function roomIn(element, glass) {
  const width = element.clientWidth;
  const height = Math.max(300, (element.parentElement?.clientHeight ?? 0) - 78);
  if (!glass) return { below: false, plot: { width, height }, glass: { width: 0, height: 0 } };
  if (width < 520) return { below: true, plot: { width, height: Math.max(300, Math.min(height, width)) }, glass: { width, height: 200 } };
  const side = Math.min(230, Math.floor(width * 0.32));
  return { below: false, plot: { width: width - side - 14, height }, glass: { width: side, height: Math.min(height - 40, side + 60) } };
}

/**
 * The way of one token as large as there is room.
 * @param {Seen} seen
 * @param {number} query
 * @param {App} app
 * @param {number} scale of the whole picture
 * @param {{ width: number, height: number }} room
 */
function magnified(seen, query, app, scale, { width, height }) {
  const stops = [seen.before[query], seen.after[query]];
  for (const part of partsOf(seen, query)) stops.push(follow(stops.length > 2 ? stops[stops.length - 1] : stops[0], part));
  const plot = layOut(stops, { width, height }, { left: 4, right: 4, top: 28, bottom: 4 });
  return [
    shape("rect.outline", { x: 0.5, y: 0.5, width: width - 1, height: height - 1, rx: 6 }),
    shape("text.sum", { x: 10, y: 18 }, app.say("spaceLarger", { token: app.open.rows[query].label, times: short(plot.scale / scale, 1) })),
    ...wayOf(seen, plot, query, { app, names: true }),
  ];
}

/**
 * @param {Space} space
 * @param {import("../state.js").State} state
 * @returns {Seen}
 */
function seenFrom(space, { heads, spin }) {
  const turn = (spin * Math.PI) / 180;
  const flat = (/** @type {Matrix} */ table) => Array.from({ length: table.rows }, (_, i) => {
    const [x, y, z] = [0, 1, 2].map((axis) => (axis < table.columns ? table.data[i * table.columns + axis] : 0));
    return { x: x * Math.cos(turn) + z * Math.sin(turn), y };
  });
  const chosen = heads === "" ? null : new Set(heads === "none" ? [] : heads.split(",").map(Number));
  const on = space.arrows.map((_, head) => chosen === null || chosen.has(head));
  return { before: flat(space.before), after: flat(space.after), arrows: space.arrows.map(flat), rest: flat(space.rest), on, turn };
}

/** @param {Seen} seen */
function isWhole({ on }) {
  return on.every(Boolean);
}

/**
 * The heads that are switched on, one after the other; then the bias where all are.
 * @param {Seen} seen
 * @param {number} i
 * @returns {{ name: string, by: Point }[]}
 */
function partsOf(seen, i) {
  const heads = seen.arrows.flatMap((arrow, head) => (seen.on[head] ? [{ name: String(head), by: arrow[i] }] : []));
  return isWhole(seen) ? [...heads, { name: seen.arrows.length ? "b" : "", by: seen.rest[i] }] : heads;
}

/**
 * @param {Seen} seen
 * @param {number} i
 * @returns {Point}
 */
function endOf(seen, i) {
  return partsOf(seen, i).reduce(follow, seen.before[i]);
}

/**
 * @param {App} app
 * @param {Space} space
 * @param {Seen} seen
 */
function axisNames({ say }, { share }, { turn }) {
  const across = share[0] * Math.cos(turn) ** 2 + (share[2] ?? 0) * Math.sin(turn) ** 2; // axes are uncorrelated
  const percent = (/** @type {number} */ x) => short(100 * x, 1);
  const first = turn ? "spaceAxes" : "spaceAxis";
  return { x: say(first, { axis: 1, other: 3, share: percent(across) }), y: say("spaceAxis", { axis: 2, share: percent(share[1] ?? 0) }) };
}

/**
 * Every token's way as one arrow, quietly.
 * @param {Seen} seen
 * @param {import("./space_plot.js").Layout} plot
 */
function movesOf(seen, plot) {
  let [lines, tips] = ["", ""];
  seen.before.forEach((from, i) => {
    const [a, b] = [plot.at(from), plot.at(endOf(seen, i))];
    lines += `M${a.x.toFixed(1)} ${a.y.toFixed(1)}L${b.x.toFixed(1)} ${b.y.toFixed(1)}`;
    tips += tip(a, b, 5);
  });
  return [shape("path.move", { d: lines }), shape("path.movetip", { d: tips })];
}

/**
 * Rings before, discs after.
 * @param {Seen} seen
 * @param {import("./space_plot.js").Layout} plot
 */
function dots(seen, plot) {
  const disc = (/** @type {Point[]} */ points, /** @type {number} */ r) => points.map((point) => {
    const { x, y } = plot.at(point);
    return `M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
  }).join("");
  return [shape("path.was", { d: disc(seen.before, 3) }), shape("path.is", { d: disc(seen.after, 3.4) })];
}

/**
 * The way of one token, head by head.
 * @param {Seen} seen
 * @param {import("./space_plot.js").Layout} plot
 * @param {number} query
 * @param {{ app: App, names: boolean }} how
 */
function wayOf(seen, plot, query, { app, names }) {
  const start = seen.before[query];
  const made = [];
  let from = start;
  for (const part of partsOf(seen, query)) {
    const to = follow(from, part);
    const [a, b] = [plot.at(from), plot.at(to)];
    const own = part.name === String(app.open.head) ? ".here" : part.name === "b" ? ".bias" : "";
    made.push(shape(`path.part${own}`, { d: `M${a.x} ${a.y}L${b.x} ${b.y}` }), shape(`path.parttip${own}`, { d: tip(a, b, 7) }));
    if (names && part.name && Math.hypot(b.x - a.x, b.y - a.y) >= TOLD) made.push(label(a, b, part.name, own));
    from = to;
  }
  const [first, last, whole] = [plot.at(start), plot.at(from), plot.at(seen.after[query])];
  made.push(shape("circle.was.on", { cx: first.x, cy: first.y, r: 4.5 }), shape("circle.is.on", { cx: whole.x, cy: whole.y, r: 5 }));
  if (!isWhole(seen)) made.push(shape("circle.partly", { cx: last.x, cy: last.y, r: 5 }));
  return made;
}

/**
 * Round each point, so that it is easy to meet.
 * @param {Seen} seen
 * @param {import("./space_plot.js").Layout} plot
 * @param {Act} act
 */
function targets(seen, plot, act) {
  return [seen.before, seen.after].flatMap((points) => points.map((point, i) => {
    const { x, y } = plot.at(point);
    return shape("circle.hit", { cx: x, cy: y, r: 9, onpointerenter: () => act.onhover(i, -1), onpointerleave: () => act.onhover(-1, -1), onclick: () => act.onpick(i, -1) });
  }));
}

/**
 * Which heads are shown, and from which side.
 * @param {App} app
 * @param {Seen} seen
 * @param {Space} space
 */
function headsOf(app, seen, space) {
  const { say, store } = app;
  const set = (/** @type {boolean[]} */ on) =>
    store.set({ heads: on.every(Boolean) ? "" : on.flatMap((yes, head) => (yes ? [head] : [])).join(",") || "none" });
  const bars = seen.arrows.map(() => el("span.length"));
  const buttons = seen.arrows.map((_, head) =>
    el("button", { "aria-pressed": String(seen.on[head]), "aria-label": say("headName", { head }), title: say("spaceHeadHelp", { head }), onclick: () => set(seen.on.map((yes, i) => (i === head ? !yes : yes))) }, head, bars[head]));
  const only = el("button.quiet", { "aria-pressed": String(isWhole(seen)), onclick: () => set(seen.on.map(() => !isWhole(seen))) }, say("spaceAll"));
  const spin = el("input", { type: "range", min: 0, max: 180, step: STEP, value: store.state.spin, "aria-label": say("spaceTurn"), oninput: () => store.set({ spin: Number(spin.value) }) });
  const choose = buttons.length ? [el("span", {}, say("spaceHeads")), el("div.heads", { role: "group", "aria-label": say("spaceHeads") }, buttons), only] : [];
  const turn = space.share.length > 2 ? el("label", {}, say("spaceTurn"), spin, el("output.digits", {}, `${store.state.spin}°`)) : "";
  return {
    element: el("div.spacetools.tools", {}, choose, turn),
    select: (/** @type {number} */ query) => {
      const sizes = seen.arrows.map((arrow) => Math.hypot(arrow[query].x, arrow[query].y));
      const most = Math.max(...sizes) || 1;
      sizes.forEach((size, head) => (bars[head].style.width = `${Math.round((100 * size) / most)}%`));
    },
  };
}

/**
 * @param {App} app
 * @param {Seen} seen
 * @param {string[]} outside tokens that stand farther away than the picture reaches
 */
function captionOf({ say, store, about }, seen, outside) {
  const key = (/** @type {string} */ name, /** @type {import("../messages.js").Word} */ word) =>
    el("span.how", {}, shape("svg.key", { width: 14, height: 12, "aria-hidden": "true" }, shape(`circle.${name}`, { cx: 7, cy: 6, r: 3.6 })), say(word));
  return el("figcaption", {},
    key("was", "before"), key("is", "after"), isWhole(seen) ? "" : key("partly", "spacePartly"),
    el("span", {}, say(seen.arrows.length ? "spaceHow" : "spaceHowWhole")),
    outside.length ? el("span", {}, say("spaceOutside", { tokens: outside.join(", ") })) : "",
    store.state.edits.length && !about.live ? el("span", {}, say("withoutEdits")) : "");
}

/**
 * @param {App} app
 * @param {Seen} seen
 * @param {number} query
 */
function saying({ say, open }, seen, query) {
  const term = el("b.term.query", {}, open.rows[query].label);
  const [from, to] = [seen.before[query], seen.after[query]];
  const total = short(Math.hypot(to.x - from.x, to.y - from.y));
  const sizes = seen.arrows.map((arrow) => Math.hypot(arrow[query].x, arrow[query].y));
  const head = sizes.indexOf(Math.max(...sizes));
  return head < 0 ? say.parts("seeMoved", { query: term, total }) : say.parts("seeMovedBy", { query: term, total, head, part: short(sizes[head]) });
}

/**
 * @param {App} app
 * @param {Seen} seen
 * @param {number} query
 */
function reading(app, seen, query) {
  const { say, open } = app;
  const write = app.peek ? full : short;
  const pair = (/** @type {string} */ name, /** @type {Point} */ { x, y }) =>
    el("span.figure", {}, el("i", {}, name), " ", el("b", { title: `${full(x)}, ${full(y)}` }, `(${write(x)}, ${write(y)})`));
  const own = seen.arrows[open.head]?.[query];
  return [
    el("span.who", {}, el("b.term.query", {}, open.rows[query].label)),
    pair(say("before"), seen.before[query]),
    pair(say("after"), seen.after[query]),
    own ? pair(say("spaceAdds", { head: open.head }), own) : "",
  ];
}

/**
 * @param {App} app
 * @param {Space} space
 * @returns {(string | number)[][]}
 */
function linesOf({ open, say }, space) {
  const axes = Array.from({ length: space.share.length }, (_, axis) => axis);
  const tables = [[say("before"), space.before], [say("after"), space.after], ...space.arrows.map((one, head) => [say("headName", { head }), one])];
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
  return tabbed(linesOf(app, space));
}

/**
 * @param {App} app
 * @param {Space} space
 */
function tableOf(app, space) {
  const [head, ...lines] = linesOf(app, { ...space, arrows: [] });
  return el("table", {}, el("caption", {}, app.say("spaceLabel")),
    el("tr", {}, head.map((name) => el("th", { scope: "col" }, name))),
    lines.slice(0, 60).map(([name, ...numbers]) => el("tr", {}, el("th", { scope: "row" }, name), numbers.map((x) => el("td", {}, short(Number(x)))))));
}
