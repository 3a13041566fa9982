// A pattern as a heat map on a canvas, for many tokens; with zoom and pan beyond 200.

import { color, ramp } from "../color.js";
import { keepLatest } from "../debounce.js";
import { el, fill, shape, sharpen, textWidth } from "../dom.js";
import { matrix, pooled, rangeOf, row } from "../matrix.js";
import { shortened } from "./plot.js";

/**
 * @typedef {import("./plot.js").Plot} Plot
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("../source.js").Span} Span
 */

/**
 * The visible part, in positions; kept between drawings.
 * @typedef {{ across: [number, number], down: [number, number] } | null} Window
 * @typedef {{ window: Window }} Viewport
 * @typedef {(rows: Span, columns: Span) => Promise<Matrix>} Fetch
 */

/** Longer texts can be zoomed. */
export const ZOOM_FROM = 200;
const FONT = 11;

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
  const frame = el("div.heat", { style: { width: `${size.width}px`, height: `${size.height}px` } }, canvas, over);
  const marks = shape("g.marks");
  const texts = shape("g.labels");
  over.append(marks, texts);
  fill(element, frame);
  const whole = { across: /** @type {[number, number]} */ ([0, size.n_across]), down: /** @type {[number, number]} */ ([0, size.n_down]) };
  let chosen = [plot.query, plot.key, false];
  const seen = () => viewport.window ?? whole;
  const ask = fetch && keepLatest((/** @type {Span[]} */ spans) => fetch(...across(plot, spans)));
  const show = () => {
    const part = seen();
    paint(canvas, plot, size, seen, ask);
    fill(texts, labels(plot, size, part));
    fill(marks, markings(plot, size, part, chosen));
  };
  show();
  listen(over, plot, size, { viewport, whole, show });
  const select = (/** @type {number} */ query, /** @type {number} */ key, peek = false) => {
    if (chosen[0] === query && chosen[1] === key && chosen[2] === peek) return;
    chosen = [query, key, peek];
    fill(marks, markings(plot, size, viewport.window ?? whole, chosen));
  };
  /** Draw other numbers in the same place. */
  const repaint = (/** @type {Partial<Plot>} */ other) => {
    Object.assign(plot, other);
    paint(canvas, plot, size, seen, ask);
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
  const top = 26 + Math.ceil(widest(across) * 0.72) + 10;
  const room = { wide: plot.width - left - 30, tall: Math.max(160, plot.height - top - 6) };
  const cell = Math.min(room.wide / across.length, room.tall / down.length, 24);
  const zooms = Math.max(across.length, down.length) > ZOOM_FROM;
  const wide = zooms ? Math.min(room.wide, Math.max(room.tall, 240)) : Math.max(40, cell * across.length);
  const tall = zooms ? room.tall : Math.max(40, cell * down.length);
  return {
    ...{ left, top, wide: Math.round(wide), tall: Math.round(tall), zooms },
    ...{ width: left + Math.round(wide) + 30, height: top + Math.round(tall) + 6 },
    ...{ n_across: across.length, n_down: down.length },
  };
}

/** @typedef {ReturnType<typeof layOut>} Size */

/**
 * Return rows and columns for the spans down and across.
 * @param {Plot} plot
 * @param {Span[]} spans
 * @returns {[Span, Span]}
 */
function across({ turned }, [down, over]) {
  return turned ? [over, down] : [down, over];
}

/**
 * Paint the visible part. If a tile has to be loaded, the old one is moved meanwhile.
 * @param {HTMLCanvasElement} canvas
 * @param {Plot} plot
 * @param {Size} size
 * @param {() => NonNullable<Window>} window returns the visible part, now or when a tile arrives
 * @param {((spans: Span[]) => Promise<Matrix | null>) | null} ask
 */
function paint(canvas, plot, size, window, ask) {
  const part = window();
  const spans = [
    { start: Math.floor(part.down[0]), stop: Math.ceil(part.down[1]), bins: size.tall },
    { start: Math.floor(part.across[0]), stop: Math.ceil(part.across[1]), bins: size.wide },
  ];
  if (!ask) {
    put(canvas, plot, size, part, spans, cutOut(plot, ...across(plot, spans)));
    return;
  }
  const known = CELLS.get(canvas);
  if (known) lay(canvas, known, size, part);
  ask(spans).then((table) => {
    if (table && canvas.isConnected) put(canvas, { ...plot, range: rangeOf(table) }, size, window(), spans, table);
  }, () => undefined); // no server: keep what is shown
}

/**
 * @param {Plot} plot
 * @param {Span} rows
 * @param {Span} columns
 */
function cutOut({ table, kept }, rows, columns) {
  const whole = rows.start === 0 && columns.start === 0 && rows.stop === table.rows && columns.stop === table.columns;
  if (whole && !kept) return pooled(table, rows.bins, columns.bins, "max");
  const part = matrix(rows.stop - rows.start, columns.stop - columns.start);
  for (let i = 0; i < part.rows; i++) {
    const from = row(table, rows.start + i);
    for (let j = 0; j < part.columns; j++) {
      const at = columns.start + j;
      const hidden = kept && !kept[(rows.start + i) * table.columns + at];
      part.data[i * part.columns + j] = hidden ? 0 : from[at];
    }
  }
  return pooled(part, rows.bins, columns.bins, "max");
}

/**
 * Color a table and draw it at its place in the window.
 * @param {HTMLCanvasElement} canvas
 * @param {Plot} plot
 * @param {Size} size
 * @param {NonNullable<Window>} part
 * @param {Span[]} spans down, across
 * @param {Matrix} table
 */
function put(canvas, plot, size, part, spans, table) {
  const [high, wide] = plot.turned ? [table.columns, table.rows] : [table.rows, table.columns];
  const cells = cellsOf(canvas, wide, high);
  tint(cells.image.data, plot, table);
  cells.context.putImageData(cells.image, 0, 0);
  cells.spans = spans;
  lay(canvas, cells, size, part);
}

/**
 * Draw a picture at its place in the window.
 * @param {HTMLCanvasElement} canvas
 * @param {Cells} cells
 * @param {Size} size
 * @param {NonNullable<Window>} part
 */
function lay(canvas, { picture, spans }, size, part) {
  const pen = sharpen(canvas, size.wide, size.tall);
  pen.imageSmoothingEnabled = false;
  const stretch = { across: size.wide / (part.across[1] - part.across[0]), down: size.tall / (part.down[1] - part.down[0]) };
  pen.drawImage(
    picture,
    (spans[1].start - part.across[0]) * stretch.across,
    (spans[0].start - part.down[0]) * stretch.down,
    (spans[1].stop - spans[1].start) * stretch.across,
    (spans[0].stop - spans[0].start) * stretch.down,
  );
}

/**
 * A picture with one pixel per cell, and the part of the table that it shows.
 * @typedef {{ picture: HTMLCanvasElement, context: CanvasRenderingContext2D, image: ImageData, spans: Span[] }} Cells
 */

/** @type {WeakMap<HTMLCanvasElement, Cells>} */
const CELLS = new WeakMap();

/**
 * Return the picture of a canvas, reused if the size is the same.
 * @param {HTMLCanvasElement} canvas
 * @param {number} wide
 * @param {number} high
 * @returns {Cells}
 */
function cellsOf(canvas, wide, high) {
  const known = CELLS.get(canvas);
  if (known?.image.width === wide && known.image.height === high) return known;
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [wide, high];
  const context = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d"));
  const made = { picture, context, image: context.createImageData(wide, high), spans: [] };
  CELLS.set(canvas, made);
  return made;
}

/**
 * @param {Uint8ClampedArray} bytes of an image
 * @param {Plot} plot
 * @param {Matrix} table
 */
export function tint(bytes, plot, table) {
  const weights = plot.stage === "weights";
  const pixels = new Uint32Array(bytes.buffer, bytes.byteOffset);
  const [up, under] = (weights ? ["weight", "weight"] : ["positive", "negative"]).map((role) => whole(ramp(role)));
  const most = (weights ? plot.range[1] : Math.max(Math.abs(plot.range[0]), Math.abs(plot.range[1]))) || 1;
  const [grey] = whole(Uint8ClampedArray.from(grayOf(color("masked-fill"))));
  if (plot.off) {
    pixels.fill(up[0]);
    return;
  }
  const by = 255 / most;
  const [down, across] = plot.turned ? [1, table.rows] : [table.columns, 1];
  const { rows, columns, data } = table;
  for (let i = 0, at = 0; i < rows; i++) {
    for (let j = 0, to = i * down; j < columns; j++, at++, to += across) {
      const x = data[at];
      if (x === -Infinity) pixels[to] = grey;
      else if (x >= 0) pixels[to] = up[Math.min(255, (x * by + 0.5) | 0)];
      else pixels[to] = under[Math.min(255, (0.5 - x * by) | 0)];
    }
  }
}

/**
 * View colors of four bytes as integers.
 * @param {Uint8ClampedArray} colors
 */
function whole(colors) {
  return new Uint32Array(colors.buffer, colors.byteOffset, colors.length / 4);
}

/** @param {string} hex */
function grayOf(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).concat(255);
}

/**
 * @param {Plot} plot
 * @param {Size} size
 * @param {NonNullable<Window>} part
 */
function labels(plot, size, part) {
  const [down, across] = plot.turned ? [plot.columns, plot.rows] : [plot.rows, plot.columns];
  const [downRole, acrossRole] = plot.turned ? ["key", "query"] : ["query", "key"];
  const made = [
    shape(`text.axis.${acrossRole}`, { x: size.left + 4, y: 13 }, `${plot.turned ? plot.asks : plot.answers} →`),
    shape(`text.axis.${downRole}`, { x: 0, y: 13 }, `↓ ${plot.turned ? plot.answers : plot.asks}`),
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
 * @param {NonNullable<Window>} part
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

/**
 * @param {SVGElement} over
 * @param {Plot} plot
 * @param {Size} size
 * @param {{ viewport: Viewport, whole: NonNullable<Window>, show: () => void }} view
 */
function listen(over, plot, size, { viewport, whole, show }) {
  const share = (/** @type {any} */ event) => {
    const box = over.getBoundingClientRect();
    return [(event.clientX - box.left - size.left) / size.wide, (event.clientY - box.top - size.top) / size.tall];
  };
  const place = (/** @type {any} */ event) => {
    const { across, down } = viewport.window ?? whole;
    const [u, v] = share(event);
    if (u < 0 || v < 0 || u >= 1 || v >= 1) return null;
    const pair = [Math.floor(down[0] + v * (down[1] - down[0])), Math.floor(across[0] + u * (across[1] - across[0]))];
    return plot.turned ? [pair[1], pair[0]] : pair;
  };
  /** @type {{ at: number[], window: NonNullable<Window>, moved: boolean } | null} */
  let drag = null;
  over.addEventListener("pointerdown", (event) => {
    if (size.zooms) drag = { at: share(event), window: viewport.window ?? whole, moved: false };
  });
  over.addEventListener("pointermove", (event) => {
    if (drag && event.buttons) {
      const [u, v] = share(event);
      const [du, dv] = [u - drag.at[0], v - drag.at[1]];
      drag.moved ||= Math.hypot(du * size.wide, dv * size.tall) > 4;
      if (drag.moved) {
        viewport.window = { across: moved(drag.window.across, -du, whole.across), down: moved(drag.window.down, -dv, whole.down) };
        show();
      }
      return;
    }
    const found = place(event);
    if (found) plot.onhover(found[0], found[1]);
  });
  over.addEventListener("pointerleave", () => plot.onhover(-1, -1));
  over.addEventListener("click", (event) => {
    const found = drag?.moved ? null : place(event);
    drag = null;
    if (found) plot.onpick(found[0], found[1]);
  });
  if (!size.zooms) return;
  over.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [u, v] = share(event);
    const { across, down } = viewport.window ?? whole;
    const by = Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.004);
    viewport.window = { across: zoomed(across, u, by, whole.across), down: zoomed(down, v, by, whole.down) };
    show();
  }, { passive: false });
}

/**
 * @param {[number, number]} span
 * @param {number} by a share of the span
 * @param {[number, number]} whole
 * @returns {[number, number]}
 */
function moved(span, by, whole) {
  const width = span[1] - span[0];
  const start = Math.min(Math.max(span[0] + by * width, whole[0]), whole[1] - width);
  return [start, start + width];
}

/**
 * @param {[number, number]} span
 * @param {number} at the share of the span that stays in place
 * @param {number} by
 * @param {[number, number]} whole
 * @returns {[number, number]}
 */
function zoomed(span, at, by, whole) {
  const width = Math.min(Math.max((span[1] - span[0]) * by, Math.min(8, whole[1])), whole[1] - whole[0]);
  const start = span[0] + at * (span[1] - span[0] - width);
  return moved([start, start + width], 0, whole);
}
