// The cells of a heat map on a canvas: one table, or two in one picture, before and after the edits.

import { color, ramp, weightTone } from "../color.js";
import { sharpen } from "../dom.js";
import { matrix, pooled, rangeOf, row } from "../matrix.js";
import { differenceOf } from "./plot.js";

/**
 * @typedef {import("./plot.js").Plot} Plot
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {import("../source.js").Span} Span
 * @typedef {import("./heatmap.js").Size} Size
 * @typedef {import("./heatmap.js").Window} Window
 */

/** Cells of at least this many pixels have two halves; smaller ones show the difference. */
const MIN_HALVES = 14;

/**
 * Return how one picture shows both versions: as halves of each cell or as their difference.
 * @param {Plot} plot
 * @param {Size} size
 * @param {NonNullable<Window>} part
 * @returns {"halves" | "difference" | null}
 */
export function overlayOf({ before, stage }, size, part) {
  if (!before) return null;
  const cell = Math.min(size.wide / (part.across[1] - part.across[0]), size.tall / (part.down[1] - part.down[0]));
  return cell >= MIN_HALVES || stage !== "weights" ? "halves" : "difference";
}

/**
 * Return rows and columns for the spans down and across.
 * @param {Plot} plot
 * @param {Span[]} spans
 * @returns {[Span, Span]}
 */
export function across({ turned }, [down, over]) {
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
export function paint(canvas, plot, size, window, ask) {
  const part = window();
  const spans = [
    { start: Math.floor(part.down[0]), stop: Math.ceil(part.down[1]), bins: size.tall },
    { start: Math.floor(part.across[0]), stop: Math.ceil(part.across[1]), bins: size.wide },
  ];
  if (!ask) {
    put(canvas, plot, size, part, spans);
    return;
  }
  const known = CELLS.get(canvas)?.after;
  if (known) lay(sharpened(canvas, size), known, size, part);
  ask(spans).then((table) => {
    if (table && canvas.isConnected) lay(sharpened(canvas, size), colored(canvas, "after", { ...plot, range: rangeOf(table) }, spans, table), size, window());
  }, () => undefined); // no server: keep what is shown
}

/**
 * @param {Pick<Plot, "table" | "kept">} plot
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
 * Draw the visible part of a table in memory, or of two.
 * @param {HTMLCanvasElement} canvas
 * @param {Plot} plot
 * @param {Size} size
 * @param {NonNullable<Window>} part
 * @param {Span[]} spans down, across
 */
function put(canvas, plot, size, part, spans) {
  const cut = (/** @type {Pick<Plot, "table" | "kept">} */ one) => cutOut(one, ...across(plot, spans));
  const how = overlayOf(plot, size, part);
  const pen = sharpened(canvas, size);
  if (how === "difference" && plot.before) {
    const { table, most } = differenceOf(plot, plot.before);
    const rising = cut({ table, kept: null });
    const falling = cut({ table: matrix(table.rows, table.columns, table.data.map((x) => -x)), kept: null });
    rising.data.forEach((x, at) => falling.data[at] > x && (rising.data[at] = -falling.data[at])); // the largest change of a bin
    lay(pen, colored(canvas, "after", { ...plot, stage: "scores", range: [-most, most], off: false }, spans, rising), size, part);
    return;
  }
  lay(pen, colored(canvas, "after", plot, spans, cut(plot)), size, part);
  if (!plot.before) return;
  const before = colored(canvas, "before", { ...plot, ...plot.before, range: plot.range }, spans, cut(plot.before));
  pen.save();
  pen.clip(halves(size, part));
  lay(pen, before, size, part);
  pen.restore();
}

/**
 * Return the upper left halves of all visible cells.
 * @param {Size} size
 * @param {NonNullable<Window>} part
 */
function halves(size, part) {
  const made = new Path2D();
  const [wide, tall] = [size.wide / (part.across[1] - part.across[0]), size.tall / (part.down[1] - part.down[0])];
  for (let i = Math.floor(part.down[0]); i < part.down[1]; i++) {
    for (let j = Math.floor(part.across[0]); j < part.across[1]; j++) {
      const [x, y] = [(j - part.across[0]) * wide, (i - part.down[0]) * tall];
      made.moveTo(x, y);
      made.lineTo(x + wide, y);
      made.lineTo(x, y + tall);
    }
  }
  return made;
}

/**
 * Return the pen of an empty canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {Size} size
 */
function sharpened(canvas, size) {
  const pen = sharpen(canvas, size.wide, size.tall);
  pen.imageSmoothingEnabled = false;
  return pen;
}

/**
 * Color a table, one pixel per cell.
 * @param {HTMLCanvasElement} canvas
 * @param {"before" | "after"} version
 * @param {Plot} plot
 * @param {Span[]} spans down, across
 * @param {Matrix} table
 */
function colored(canvas, version, plot, spans, table) {
  const [high, wide] = plot.turned ? [table.columns, table.rows] : [table.rows, table.columns];
  const cells = cellsOf(canvas, version, wide, high);
  tint(cells.image.data, plot, table);
  cells.context.putImageData(cells.image, 0, 0);
  cells.spans = spans;
  return cells;
}

/**
 * Draw a picture at its place in the window.
 * @param {CanvasRenderingContext2D} pen
 * @param {Cells} cells
 * @param {Size} size
 * @param {NonNullable<Window>} part
 */
function lay(pen, { picture, spans }, size, part) {
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

/** @type {WeakMap<HTMLCanvasElement, { before?: Cells, after?: Cells }>} */
const CELLS = new WeakMap();

/**
 * Return the picture of a canvas, reused if the size is the same.
 * @param {HTMLCanvasElement} canvas
 * @param {"before" | "after"} version
 * @param {number} wide
 * @param {number} high
 * @returns {Cells}
 */
function cellsOf(canvas, version, wide, high) {
  const both = CELLS.get(canvas) ?? {};
  const known = both[version];
  if (known?.image.width === wide && known.image.height === high) return known;
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [wide, high];
  const context = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d"));
  const made = { picture, context, image: context.createImageData(wide, high), spans: [] };
  CELLS.set(canvas, { ...both, [version]: made });
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
  const shade = weights ? (/** @type {number} */ x) => 255 * weightTone(x / most) : (/** @type {number} */ x) => x * by;
  const [down, across] = plot.turned ? [1, table.rows] : [table.columns, 1];
  const { rows, columns, data } = table;
  for (let i = 0, at = 0; i < rows; i++) {
    for (let j = 0, to = i * down; j < columns; j++, at++, to += across) {
      const x = data[at];
      if (x === -Infinity) pixels[to] = grey;
      else if (x >= 0) pixels[to] = up[Math.min(255, (shade(x) + 0.5) | 0)];
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

