// A pattern as a grid of circles whose area is the weight; rings are negative scores.

import { el, fill, isTouch, pointIn, shape, textWidth } from "../dom.js";
import { short } from "../format.js";
import { move, tween } from "../motion.js";
import { shortened } from "./plot.js";

/** @typedef {import("./plot.js").Plot} Plot */

const FONT = 12;
/** The smallest cell in pixels with one of its lines: 22 between the lines for a mouse, 28 for a finger. Larger grids scroll under their labels. */
const MIN_CELL = 23;
const MIN_CELL_TOUCH = 29;
const MAX_CELL = 52;
/** Narrower pictures have no row sums. */
const MIN_SUMS_WIDTH = 420;
const GAP = 8;

/**
 * Positions in pixels. "across" and "down" are the axes on the screen.
 * @typedef {object} Layout
 * @property {number} cell
 * @property {number} left
 * @property {number} top
 * @property {number} width
 * @property {number} height
 * @property {boolean} slanted whether the top labels are rotated
 * @property {number} n_down
 * @property {number} n_across
 * @property {boolean} sums
 */

/**
 * Draw the grid; return a function that moves the selection without redrawing.
 * @param {Element} element
 * @param {Plot} plot
 */
export function draw(element, plot) {
  const layout = layOut(plot);
  const picture = shape("svg.grid", {
    width: layout.width,
    height: layout.height,
    viewBox: `0 0 ${layout.width} ${layout.height}`,
    role: "img",
    "aria-label": `${plot.asks}; ${plot.answers}`,
  });
  const marks = markers(plot);
  const frame = shape("g.marks", {}, marks.across, marks.down, marks.chosen, edits(plot, layout.cell, layout.left, layout.top));
  const circles = cells(plot, layout);
  picture.append(...ground(plot, layout), frame, ...circles.paths);
  if (layout.sums) picture.append(...sums(plot, layout));
  const whole = el("div.grid-plot", { style: { width: `${layout.width}px`, height: `${layout.height}px` } }, picture, ...strips(plot, layout));
  listen(whole, plot, layout);
  fill(element, whole);
  const select = (/** @type {number} */ query, /** @type {number} */ key, peek = false) =>
    mark(whole, marks, plot, layout, query, key, peek);
  animate(whole, plot, layout, circles);
  reveal(element, plot, layout);
  select(plot.query, plot.key);
  return select;
}

/**
 * @param {Plot} plot
 * @returns {Layout}
 */
function layOut(plot) {
  const { rows, columns, turned } = plot;
  const [down, across] = turned ? [columns, rows] : [rows, columns];
  const widest = (/** @type {typeof rows} */ ticks) =>
    Math.max(...ticks.map((tick) => textWidth(shortened(tick.label), FONT)), 10);
  const left = Math.max(Math.ceil(widest(down)) + 16, 58);
  const sums = plot.stage === "weights" && plot.alone && plot.width > MIN_SUMS_WIDTH;
  const right = sums && !turned ? 52 : 12;
  const wide = widest(across);
  const low = sums ? 22 : 6;
  const fit = (/** @type {number} */ head) =>
    Math.max(isTouch() ? MIN_CELL_TOUCH : MIN_CELL, Math.floor(Math.min((plot.width - left - right) / across.length, (plot.height - head - low) / down.length, MAX_CELL)));
  const heads = { level: 46, slanted: 38 + Math.ceil(wide * 0.72) };
  const slanted = wide > fit(heads.level) - 5;
  const top = slanted ? heads.slanted : heads.level;
  const cell = fit(top);
  const lean = slanted ? Math.ceil(textWidth(shortened(across[across.length - 1].label), FONT) * 0.72) : 0;
  return {
    ...{ cell, left, top, slanted, n_down: down.length, n_across: across.length, sums },
    width: left + cell * across.length + Math.max(right, lean),
    height: top + cell * down.length + low,
  };
}

/**
 * @param {Plot} plot
 * @param {Layout} layout
 */
function ground(plot, { cell, left, top, n_down: n, n_across: m }) {
  let lines = "";
  for (let i = 0; i <= n; i++) lines += `M${left} ${top + i * cell}h${m * cell}`;
  for (let j = 0; j <= m; j++) lines += `M${left + j * cell} ${top}v${n * cell}`;
  const made = [shape("path.hairlines", { d: lines })];
  const hidden = hiddenPath(plot, cell, left, top);
  if (hidden) made.push(shape("path.hatch", { d: hidden }));
  return made;
}

/**
 * Return hatching for masked cells.
 * @param {Plot} plot
 * @param {number} cell
 * @param {number} left
 * @param {number} top
 */
function hiddenPath({ allowed, rows, columns, turned, stage }, cell, left, top) {
  if (!allowed || stage === "scores") return "";
  let path = "";
  for (let i = 0; i < rows.length; i++) {
    for (let j = 0; j < columns.length; j++) {
      if (allowed[i * columns.length + j]) continue;
      const [x, y] = turned ? [left + i * cell, top + j * cell] : [left + j * cell, top + i * cell];
      for (let k = 1; k < 4; k++) {
        const at = (k * cell) / 2;
        const [a, b] = [Math.max(0, at - cell), Math.min(at, cell)];
        path += `M${x + a} ${y + b}L${x + b} ${y + a}`;
      }
    }
  }
  return path;
}

/** The grid that was drawn last, from which the next one moves. @type {{ plot: Plot, cell: number, radii: Float32Array } | null} */
let previous = null;

/**
 * Let circles grow and shrink from one stage to the next, and let a turned grid turn. Other
 * changes, such as a moving slider, are shown at once.
 * @param {HTMLElement} whole
 * @param {Plot} plot
 * @param {Layout} layout
 * @param {ReturnType<typeof cells>} circles
 */
function animate(whole, plot, { cell }, { radii, put }) {
  const old = previous;
  previous = plot.alone ? { plot, cell, radii } : null;
  if (!old || !plot.alone || old.plot.rows !== plot.rows || old.plot.columns !== plot.columns) return;
  if (old.plot.turned !== plot.turned) {
    move(whole.querySelector("svg.grid"), { transform: `rotate(${plot.turned ? 90 : -90}deg)`, opacity: 0.2 });
    return;
  }
  if (old.plot.stage === plot.stage || old.radii.length !== radii.length) return;
  const scale = cell / old.cell;
  if (old.plot.stage === "scores") move(whole.querySelector(".hatch"), { opacity: 0 });
  whole.setAttribute("aria-busy", "true");
  tween((part) => {
    put(radii.map((r, i) => r * part + old.radii[i] * scale * (1 - part)));
    if (part === 1) whole.removeAttribute("aria-busy");
  });
}

/**
 * Return the circles of all cells, their radii (negative for negative numbers), and a function that
 * draws other radii.
 * @param {Plot} plot
 * @param {Layout} layout
 */
function cells(plot, { cell, left, top }) {
  const { table, columns, turned, kept, stage } = plot;
  const most = stage === "weights" ? 1 : Math.max(Math.abs(plot.range[0]), Math.abs(plot.range[1])) || 1;
  const largest = cell / 2 - Math.max(1, cell * 0.06);
  const radii = table.data.map((x, at) => ((!kept || kept[at]) && Number.isFinite(x) && !plot.off ? Math.sign(x) * Math.sqrt(Math.abs(x) / most) * largest : 0));
  const middle = (/** @type {number} */ at) => {
    const [i, j] = [Math.floor(at / columns.length), at % columns.length];
    const [across, down] = turned ? [i, j] : [j, i];
    return /** @type {const} */ ([left + (across + 0.5) * cell, top + (down + 0.5) * cell]);
  };
  const [dots, positive, negative, before] = [shape("path.dots"), shape(stage === "weights" ? "path.weights" : "path.positive"), shape("path.negative"), shape("path.ring")];
  const put = (/** @type {Float32Array} */ sizes) => {
    const paths = { dots: "", positive: "", negative: "" };
    sizes.forEach((r, at) => {
      const [x, y] = middle(at);
      if (Math.abs(r) < 0.7) paths.dots += visible(plot, at) ? disc(x, y, 0.7) : "";
      else if (r >= 0) paths.positive += disc(x, y, r);
      else paths.negative += disc(x, y, Math.max(0.7, -r - 0.8));
    });
    dots.setAttribute("d", paths.dots);
    positive.setAttribute("d", paths.positive);
    negative.setAttribute("d", paths.negative);
  };
  put(radii);
  let rings = "";
  plot.before?.table.data.forEach((x, at) => {
    const r = !plot.before?.off && (plot.before?.kept?.[at] ?? 1) ? Math.sqrt(x) * largest : 0;
    if (r >= 0.7) rings += disc(...middle(at), r);
  });
  before.setAttribute("d", rings);
  return { radii, put, paths: [dots, positive, negative, ...(plot.before ? [before] : [])] };
}

/**
 * @param {Plot} plot
 * @param {number} at
 */
function visible({ allowed, stage }, at) {
  return stage === "scores" || !allowed || allowed[at] === 1;
}

/**
 * @param {number} x
 * @param {number} y
 * @param {number} r
 */
function disc(x, y, r) {
  const [d, s] = [(2 * r).toFixed(2), r.toFixed(2)];
  return `M${(x - r).toFixed(2)} ${y.toFixed(2)}a${s} ${s} 0 1 0 ${d} 0a${s} ${s} 0 1 0 -${d} 0z`;
}

/**
 * Return the labels in three strips that stay in view while the cells scroll: above, to the left,
 * and in the corner of both.
 * @param {Plot} plot
 * @param {Layout} layout
 */
function strips(plot, layout) {
  const { left, top, width, height } = layout;
  const strip = (/** @type {string} */ name, /** @type {number} */ wide, /** @type {number} */ high) =>
    shape(`svg.labels.${name}`, { width: wide, height: high, "aria-hidden": "true" }, shape("rect.ground", { width: wide, height: high }));
  const [above, aside, corner] = [strip("above", width, top), strip("aside", left, height), strip("corner", left, top)];
  for (const text of labels(plot, layout)) {
    if (text.classList.contains("axis")) corner.append(text); // titles never scroll, so they cannot slide over each other
    else (text.getAttribute("text-anchor") === "end" ? aside : above).append(text);
  }
  return [above, aside, corner];
}

/**
 * Scroll to the selected cell if the grid is larger than its place.
 * @param {Element} element the place, which scrolls
 * @param {Plot} plot
 * @param {Layout} layout
 */
function reveal(element, plot, { cell, left, top }) {
  const [i, j] = plot.turned ? [plot.key, plot.query] : [plot.query, plot.key];
  const [x, y] = [left + j * cell, top + i * cell];
  if (x + cell > element.scrollLeft + element.clientWidth || x < element.scrollLeft + left) element.scrollLeft = Math.max(0, x + cell / 2 - (element.clientWidth + left) / 2);
  if (y + cell > element.scrollTop + element.clientHeight || y < element.scrollTop + top) element.scrollTop = Math.max(0, y + cell / 2 - (element.clientHeight + top) / 2);
}

/**
 * @param {Plot} plot
 * @param {Layout} layout
 */
function labels(plot, layout) {
  const { cell, left, top, slanted } = layout;
  const { rows, columns, turned } = plot;
  const [down, across] = turned ? [columns, rows] : [rows, columns];
  const [downRole, acrossRole] = turned ? ["key", "query"] : ["query", "key"];
  const made = down.map((tick, i) =>
    shape(`text.tick.${downRole}${tick.special ? ".special" : ""}`, {
      x: left - GAP,
      y: top + (i + 0.5) * cell,
      dy: "0.35em",
      "text-anchor": "end",
      "data-i": i,
    }, shortened(tick.label)),
  );
  across.forEach((tick, j) => {
    const [x, y] = [left + (j + 0.5) * cell, top - GAP];
    const turn = slanted ? { transform: `rotate(-46 ${x} ${y})`, "text-anchor": "start" } : { "text-anchor": "middle" };
    made.push(shape(`text.tick.${acrossRole}${tick.special ? ".special" : ""}`, { x, y, "data-i": j, ...turn }, shortened(tick.label)));
  });
  made.push(
    shape(`text.axis.${acrossRole}`, { x: left, y: 13 }, `${turned ? plot.asks : plot.answers} →`),
    shape(`text.axis.${downRole}`, { x: left - GAP, y: 13, "text-anchor": "end" }, "↓"),
    shape(`text.axis.${downRole}`, { x: 0, y: 13 }, turned ? plot.answers : plot.asks),
  );
  if (left < 150) return fitTitles(made, plot, layout);
  return made;
}

/**
 * Put the titles of both axes on one line if the labels are narrow.
 * @param {SVGElement[]} made
 * @param {Plot} plot
 * @param {Layout} layout
 */
function fitTitles(made, plot, layout) {
  const [across, arrow, down] = made.slice(-3);
  const name = `↓ ${plot.turned ? plot.answers : plot.asks}`;
  down.textContent = name;
  arrow.remove();
  const wide = textWidth(name, FONT) + 18;
  if (layout.left < wide) across.setAttribute("x", String(wide));
  return made.filter((one) => one !== arrow);
}

/**
 * @param {Plot} plot
 * @param {Layout} layout
 */
function sums(plot, { cell, left, top, n_across: m, n_down: n }) {
  const { table, rows, columns, turned, t } = plot;
  const made = rows.map((_, i) => {
    let sum = 0;
    for (let j = 0; j < columns.length; j++) sum += table.data[i * columns.length + j];
    const text = plot.off ? short(0) : short(sum);
    if (turned) {
      return cell < 30 ? null : shape("text.sum", { x: left + (i + 0.5) * cell, y: top + n * cell + 15, "text-anchor": "middle" }, text);
    }
    return cell < 12 ? null : shape("text.sum", { x: left + m * cell + 8, y: top + (i + 0.5) * cell, dy: "0.35em" }, text);
  });
  // below them: labels above could overlap it
  if (!turned) made.push(shape("text.sum", { x: left + m * cell + 8, y: top + n * cell + 15 }, t("sum")));
  return made.filter((one) => one !== null);
}

/**
 * Create bands for the selected row and column and a frame for the cell; they are moved later.
 * @param {Plot} plot
 */
function markers({ turned }) {
  const [down, across] = turned ? ["key", "query"] : ["query", "key"];
  return { across: shape(`rect.band.${down}`), down: shape(`rect.band.${across}`), chosen: shape("rect.chosen", { rx: 3 }) };
}

/**
 * @param {Element} shape
 * @param {Record<string, number>} place
 */
function put(shape, place) {
  for (const [name, value] of Object.entries(place)) shape.setAttribute(name, String(value));
}

/**
 * Move the marks to a cell.
 * @param {Element} picture
 * @param {ReturnType<typeof markers>} marks
 * @param {Plot} plot
 * @param {Layout} layout
 * @param {number} query
 * @param {number} key
 * @param {boolean} peek whether it is only hovered
 */
function mark(picture, marks, plot, { cell, left, top, n_down: n, n_across: m }, query, key, peek) {
  const [i, j] = plot.turned ? [key, query] : [query, key];
  const [x, y] = [left + j * cell, top + i * cell];
  put(marks.across, { x: left, y, width: m * cell, height: cell });
  put(marks.down, { x, y: top, width: cell, height: n * cell });
  put(marks.chosen, { x: x + 0.5, y: y + 0.5, width: cell - 1, height: cell - 1 });
  marks.chosen.classList.toggle("peek", peek);
  for (const text of picture.querySelectorAll("text.tick")) {
    const role = text.classList.contains("query") ? query : key;
    text.classList.toggle("on", Number(text.getAttribute("data-i")) === role);
  }
}

/**
 * @param {Plot} plot
 * @param {number} cell
 * @param {number} left
 * @param {number} top
 */
function edits({ edited, columns, turned }, cell, left, top) {
  if (!edited) return [];
  /** @type {SVGElement[]} */
  const made = [];
  edited.forEach((yes, at) => {
    if (!yes) return;
    const [i, j] = [Math.floor(at / columns.length), at % columns.length];
    const [x, y] = turned ? [left + i * cell, top + j * cell] : [left + j * cell, top + i * cell];
    made.push(shape("rect.edited", { x: x + 1.5, y: y + 1.5, width: cell - 3, height: cell - 3 }));
  });
  return made;
}

/**
 * @param {HTMLElement} picture
 * @param {Plot} plot
 * @param {Layout} layout
 */
function listen(picture, plot, { cell, left, top, n_down: n, n_across: m }) {
  const at = (/** @type {MouseEvent} */ event) => {
    const { x, y } = pointIn(picture, event);
    const strip = /** @type {Element} */ (event.target).closest("svg.labels")?.classList; // may lie over cells
    const j = strip?.contains("aside") || strip?.contains("corner") ? -1 : Math.floor((x - left) / cell);
    const i = strip?.contains("above") || strip?.contains("corner") ? -1 : Math.floor((y - top) / cell);
    const [down, across] = [Math.min(Math.max(i, 0), n - 1), Math.min(Math.max(j, 0), m - 1)];
    const inside = (i >= 0 && i < n) || (j >= 0 && j < m);
    if (!inside) return null;
    // a label selects only a row or a column
    const pair = [i < 0 || i >= n ? -1 : down, j < 0 || j >= m ? -1 : across];
    return plot.turned ? [pair[1], pair[0]] : pair;
  };
  picture.addEventListener("pointermove", (/** @type {any} */ event) => {
    const place = event.pointerType === "touch" ? null : at(event);
    if (place) plot.onhover(place[0], place[1]);
  });
  picture.addEventListener("pointerleave", () => plot.onhover(-1, -1));
  picture.addEventListener("click", (/** @type {any} */ event) => {
    const place = at(event);
    if (place) plot.onpick(place[0], place[1]);
  });
}
