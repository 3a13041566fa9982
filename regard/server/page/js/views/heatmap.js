// A pattern as a heat map on a canvas, for many tokens, with zoom and pan.

import { keepLatest } from "../debounce.js";
import { el, fill, shape, textWidth } from "../dom.js";
import { across, overlayOf, paint } from "./heat_paint.js";
import { listen, zoomButtons, zoomer } from "./heat_zoom.js";
import { shortened } from "./plot.js";

/**
 * @typedef {import("./plot.js").Plot} Plot
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("../source.js").Span} Span
 */

/**
 * The visible part, in positions; kept between drawings, and shared by pictures side by side.
 * @typedef {{ across: [number, number], down: [number, number] }} Span2
 * @typedef {Span2 | null} Window
 * @typedef {{ window: Window, pictures?: { frame: Element, show: () => void }[] }} Viewport
 * @typedef {(rows: Span, columns: Span) => Promise<Matrix>} Fetch
 */

/** Pictures of longer texts fill their place, and the wheel zooms them. */
const FILLS_FROM = 200;
const FONT = 11;
/** The space above the labels, for titles and buttons. */
const HEAD = 28;
/** The width that the zoom buttons and gaps take from the titles of the axes. */
const BUTTONS = 130;

/**
 * Draw the heat map; return a function that moves the selection without redrawing.
 * @param {Element} element
 * @param {Plot} plot
 * @param {Viewport} viewport
 * @param {Fetch | null} [fetch] loads tiles of tables that are too large for memory
 */
export function draw(element, plot, viewport, fetch = null) {
  const size = layOut(plot);
  const canvas = /** @type {any} */ (el("canvas.cells", { style: { left: `${size.left}px`, top: `${size.top}px` } }));
  const over = shape("svg.over", { width: size.width, height: size.height, role: "img", "aria-label": `${plot.asks}; ${plot.answers}` });
  const marks = shape("g.marks");
  const texts = shape("g.labels");
  over.append(marks, texts);
  const zoom = zoomer(viewport, { across: [0, size.n_across], down: [0, size.n_down] });
  let chosen = [plot.query, plot.key, false];
  const buttons = zoomButtons(plot.t, zoom, () => /** @type {[number, number]} */ (plot.turned ? [chosen[0], chosen[1]] : [chosen[1], chosen[0]]));
  const frame = el("div.heat", { style: { width: `${size.width}px`, height: `${size.height}px` } }, canvas, over, buttons);
  fill(element, frame);
  const ask = fetch && keepLatest((/** @type {Span[]} */ spans) => fetch(...across(plot, spans)));
  const refresh = () => {
    paint(canvas, plot, size, zoom.seen, ask);
    plot.onoverlay?.(overlayOf(plot, size, zoom.seen()));
  };
  const show = () => {
    if (!frame.isConnected) return;
    const part = zoom.seen();
    refresh();
    fill(texts, labels(plot, size, part));
    fill(marks, markings(plot, size, part, chosen));
    frame.dataset.zoomed = String(viewport.window !== null);
    frame.dataset.window = JSON.stringify([part.across, part.down].map((span) => span.map((x) => Number(x.toFixed(2)))));
  };
  viewport.pictures = [...(viewport.pictures ?? []).filter((one) => one.frame.isConnected), { frame, show }];
  show();
  listen(over, plot, size, zoom);
  const select = (/** @type {number} */ query, /** @type {number} */ key, peek = false) => {
    if (chosen[0] === query && chosen[1] === key && chosen[2] === peek) return;
    chosen = [query, key, peek];
    fill(marks, markings(plot, size, zoom.seen(), chosen));
  };
  /** Draw other numbers in the same place. */
  const repaint = (/** @type {Partial<Plot>} */ other) => {
    Object.assign(plot, other);
    refresh();
  };
  return Object.assign(select, { repaint });
}

/** @param {Plot} plot */
function layOut(plot) {
  const { rows, columns, turned } = plot;
  const [down, across] = turned ? [columns, rows] : [rows, columns];
  const widest = (/** @type {typeof rows} */ ticks) =>
    Math.max(...ticks.slice(0, 400).map((tick) => textWidth(shortened(tick.label, 12), FONT)), 20);
  const left = Math.ceil(widest(down)) + 14;
  const top = HEAD + Math.ceil(widest(across) * 0.72) + 10;
  const room = { wide: plot.width - left - 30, tall: Math.max(160, plot.height - top - 6) };
  const cell = Math.min(room.wide / across.length, room.tall / down.length, 24);
  const zooms = Math.max(across.length, down.length) > FILLS_FROM;
  const wide = zooms ? Math.min(room.wide, Math.max(room.tall, 240)) : Math.max(40, cell * across.length);
  const tall = zooms ? room.tall : Math.max(40, cell * down.length);
  return {
    ...{ left, top, wide: Math.round(wide), tall: Math.round(tall), zooms },
    ...{ width: Math.max(left + Math.round(wide) + 30, Math.min(plot.width, titleWidth(titlesOf(plot)) + BUTTONS)), height: top + Math.round(tall) + 6 },
    ...{ n_across: across.length, n_down: down.length },
  };
}

/** @typedef {ReturnType<typeof layOut>} Size */

/**
 * Return the titles of queries and keys: short ones if the others do not fit next to the buttons.
 * @param {Plot} plot
 */
function titlesOf(plot) {
  const whole = [plot.asks, plot.answers];
  return titleWidth(whole) < plot.width - BUTTONS ? whole : [plot.t("queriesShort"), plot.t("keysShort")];
}

/** @param {string[]} titles */
function titleWidth([asks, answers]) {
  return textWidth(`↓ ${asks}`, 12) + 16 + textWidth(`${answers} →`, 12);
}

/**
 * @param {Plot} plot
 * @param {Size} size
 * @param {Span2} part
 */
function labels(plot, size, part) {
  const [down, across] = plot.turned ? [plot.columns, plot.rows] : [plot.rows, plot.columns];
  const [downRole, acrossRole] = plot.turned ? ["key", "query"] : ["query", "key"];
  const [asks, answers] = titlesOf(plot);
  const made = [
    shape(`text.axis.${acrossRole}`, { x: size.left + 4, y: 13 }, `${plot.turned ? asks : answers} →`),
    shape(`text.axis.${downRole}`, { x: 0, y: 13 }, `↓ ${plot.turned ? answers : asks}`),
  ];
  const title = textWidth(made[1].textContent ?? "", 12) + 16;
  if (title > size.left) made[0].setAttribute("x", String(title));
  const step = (/** @type {number} */ pixels, /** @type {[number, number]} */ span) =>
    Math.max(1, Math.ceil(13 / (pixels / (span[1] - span[0]))));
  each(part.down, step(size.tall, part.down), (i, at) => {
    const y = size.top + at * size.tall;
    made.push(shape(`text.tick.small.${downRole}`, { x: size.left - 6, y, dy: "0.35em", "text-anchor": "end" }, shortened(down[i].label, 12)));
  });
  each(part.across, step(size.wide, part.across), (j, at) => {
    const [x, y] = [size.left + at * size.wide, size.top - 6];
    made.push(shape(`text.tick.small.${acrossRole}`, { x, y, transform: `rotate(-46 ${x} ${y})` }, shortened(across[j].label, 12)));
  });
  return made;
}

/**
 * @param {[number, number]} span
 * @param {number} step
 * @param {(i: number, at: number) => void} f called with a position and its center, from 0 to 1
 */
function each(span, step, f) {
  for (let i = Math.ceil(span[0] / step) * step; i < Math.floor(span[1]); i += step) {
    f(i, (i + 0.5 - span[0]) / (span[1] - span[0]));
  }
}

/**
 * @param {Plot} plot
 * @param {Size} size
 * @param {Span2} part
 * @param {any[]} chosen
 */
function markings(plot, size, part, [query, key, peek]) {
  const [i, j] = plot.turned ? [key, query] : [query, key];
  const [wide, tall] = [size.wide / (part.across[1] - part.across[0]), size.tall / (part.down[1] - part.down[0])];
  const [x, y] = [size.left + (j - part.across[0]) * wide, size.top + (i - part.down[0]) * tall];
  const made = [shape("rect.outline", { x: size.left - 0.5, y: size.top - 0.5, width: size.wide + 1, height: size.tall + 1 })];
  const inAcross = x >= size.left - 1 && x < size.left + size.wide;
  const inDown = y >= size.top - 1 && y < size.top + size.tall;
  if (inDown) made.push(shape("rect.line", { x: size.left, y, width: size.wide, height: Math.max(tall, 1) }));
  if (inAcross) made.push(shape("rect.line", { x, y: size.top, width: Math.max(wide, 1), height: size.tall }));
  if (inDown && inAcross) {
    const grown = Math.max(0, (9 - Math.min(wide, tall)) / 2);
    made.push(shape(peek ? "rect.chosen.peek" : "rect.chosen", { x: x - grown, y: y - grown, width: wide + 2 * grown, height: tall + 2 * grown, rx: 2 }));
  }
  return made;
}

