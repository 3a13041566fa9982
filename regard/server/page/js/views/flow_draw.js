// The picture of the flow on a canvas: rails, strips, lines of attention, slabs, predictions.

import { color } from "../color.js";
import { fontFamily } from "../dom.js";
import { carryLine, hasLines, isShown, memoryPoint, rowMiddle } from "../flow_layout.js";
import { labelOf } from "../tokens.js";
import { box, curve, line } from "./flow_shapes.js";
import { shortened } from "./plot.js";

/**
 * @typedef {import("../flow_layout.js").Layout} Layout
 * @typedef {import("../flow_layout.js").Column} Column
 * @typedef {import("../source.js").FlowRows} FlowRows
 * @typedef {import("../source.js").FlowLines} FlowLines
 */

/**
 * What is drawn, and what is highlighted.
 * @typedef {object} Scene
 * @property {Layout} layout
 * @property {FlowRows[]} rows by side
 * @property {"mean" | "top"} heads
 * @property {{ side: number, position: number } | null} lit the highlighted row
 * @property {import("../source.js").Candidate[] | null} classes of a classifier
 * @property {number[]} strongest the number of the strips that has the full color, by side
 * @property {number} most largest norm of what was added
 */

/** @typedef {CanvasRenderingContext2D} Pen */

/** Lines of smaller weights are left out. */
const FAINT = 0.02;

/**
 * @param {Pen} pen
 * @param {Scene} scene
 */
export function drawFlow(pen, scene) {
  const { layout } = scene;
  pen.lineCap = "round";
  drawMemory(pen, scene);
  layout.bands.forEach((_, side) => drawRails(pen, scene, side));
  layout.columns.forEach((column, i) => column.width && drawZone(pen, scene, column, i));
  layout.columns.forEach((column) => column.width && drawStrips(pen, scene, column));
  drawPredictions(pen, scene);
}

/**
 * Return how strongly a row is drawn: all rows but the highlighted one are fainter.
 * @param {Scene} scene
 * @param {number} side
 * @param {number} position
 */
function emphasis({ lit }, side, position) {
  if (!lit) return 1;
  return lit.side === side && lit.position === position ? 1 : 0.28;
}

/**
 * The rails of the encoder's output, from which cross-attention reads.
 * @param {Pen} pen
 * @param {Scene} scene
 */
function drawMemory(pen, scene) {
  const { layout } = scene;
  const crossing = layout.columns.filter((one) => one.side === 1 && (one.station.kind === "cross" || one.station.kind === "context") && one.width);
  const end = layout.columns.filter((one) => one.side === 0).pop();
  if (!crossing.length || !end) return;
  const stop = crossing[crossing.length - 1].zone;
  pen.strokeStyle = color("key");
  pen.lineWidth = 1;
  pen.setLineDash([1, 4]);
  if (layout.stacked) return drawCarry(pen, layout, end.x + layout.strip + 6, crossing[0].zone);
  for (let i = layout.bands[0].first; i < layout.bands[0].stop; i++) {
    pen.globalAlpha = 0.7 * emphasis(scene, 0, i);
    const y = rowMiddle(layout, 0, i);
    line(pen, end.x + layout.strip + 4, y, stop, y);
  }
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

/**
 * The output of the encoder on its way to a decoder below it.
 * @param {Pen} pen
 * @param {Layout} layout
 * @param {number} x right of the encoder
 * @param {number} stop
 */
function drawCarry(pen, layout, x, stop) {
  const [band] = layout.bands;
  const y = carryLine(layout);
  pen.setLineDash([2, 3]);
  line(pen, x, band.top + band.height / 2, x, y);
  line(pen, x, y, stop, y);
  pen.setLineDash([]);
}

/**
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {number} side
 */
function drawRails(pen, scene, side) {
  const { layout } = scene;
  const columns = layout.columns.filter((one) => one.side === side);
  const [start, stop] = [columns[0].x, columns[columns.length - 1].x];
  const band = layout.bands[side];
  for (let i = band.first; i < band.stop; i++) {
    const bright = scene.lit?.side === side && scene.lit.position === i;
    pen.strokeStyle = color(bright ? "query" : "strong-line");
    pen.lineWidth = bright ? 1.6 : 1;
    pen.globalAlpha = bright ? 1 : scene.lit ? 0.5 : 0.9;
    const y = Math.round(rowMiddle(layout, side, i)) + (bright ? 0 : 0.5);
    line(pen, start, y, stop, y);
  }
  pen.globalAlpha = 1;
}

/**
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {Column} column
 * @param {number} index
 */
function drawZone(pen, scene, column, index) {
  const { kind } = column.station;
  if (column.collapsed) drawFold(pen, scene, column);
  else if (hasLines(column.station)) drawLines(pen, scene, column);
  else if (kind === "feed_forward") drawSlab(pen, scene, column);
  else if (kind === "recurrent") drawRecurrence(pen, scene, column);
  if (!column.collapsed) drawAdded(pen, scene, column);
  if (kind === "output" && scene.layout.columns[index - 1]?.station.kind === "feed_forward") drawNorm(pen, scene, column);
}

/**
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {Column} column
 */
function drawLines(pen, scene, column) {
  const { layout, lit } = scene;
  const site = column.station.site ?? "";
  const rows = scene.rows[column.side];
  const lines = rows.lines[site]?.[scene.heads];
  if (!lines) return;
  const cross = column.station.kind !== "self" && column.side === 1;
  const from = cross ? 0 : column.side;
  const [x0, x1] = [column.zone + 2, column.x - 3];
  const band = layout.bands[column.side];
  const crowd = Math.min(1, 22 / Math.sqrt(Math.max(1, band.count * lines.keys.columns)) ); // many lines step back together
  pen.strokeStyle = color("weight");
  for (let i = band.first; i < band.stop; i++) {
    for (let n = 0; n < lines.keys.columns; n++) {
      const at = (i - rows.start) * lines.keys.columns + n;
      const weight = lines.weights.data[at];
      if (!(weight > FAINT)) break;
      const key = lines.keys.data[at];
      const touches = lit && ((lit.side === column.side && lit.position === i) || (lit.side === from && lit.position === key));
      const seen = isShown(layout, from, key) ? 1 : 0.35;
      pen.globalAlpha = seen * (lit ? (touches ? 0.25 + 0.75 * weight : 0.06 * weight) : crowd * (0.06 + 0.8 * weight));
      pen.lineWidth = (0.5 + 2.6 * weight) * (touches ? 1.15 : 1);
      const start = cross ? memoryPoint(layout, column, key) : { x: x0, y: rowMiddle(layout, from, key) };
      curve(pen, start.x, start.y, x1, rowMiddle(layout, column.side, i));
    }
  }
  pen.globalAlpha = 1;
}

/**
 * The feed-forward layer: a slab across all positions, each of which it reads on its own.
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {Column} column
 */
function drawSlab(pen, scene, column) {
  const { layout } = scene;
  const band = layout.bands[column.side];
  const [x, width] = [column.zone + 5, column.width - 10];
  const [top, height] = [band.top + 2, band.count * band.height - 4];
  pen.fillStyle = color("band");
  box(pen, x, top, width, height, 5);
  pen.fill();
  pen.strokeStyle = color("hairline");
  pen.lineWidth = 1;
  pen.stroke();
}

/**
 * The states of a recurrent cell: each step reads the one before it.
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {Column} column
 */
function drawRecurrence(pen, scene, column) {
  const { layout } = scene;
  const band = layout.bands[column.side];
  const by = column.station.path.includes(".backward.") ? -1 : 1;
  const x = column.x - 2;
  pen.lineWidth = 1.2;
  for (let i = band.first; i < band.stop; i++) {
    const before = i - by;
    if (!isShown(layout, column.side, before)) continue;
    const touches = scene.lit && scene.lit.side === column.side && (scene.lit.position === i || scene.lit.position === before);
    pen.strokeStyle = pen.fillStyle = color(touches ? "query" : "muted");
    pen.globalAlpha = scene.lit && !touches ? 0.25 : 0.8;
    const [y0, y1] = [rowMiddle(layout, column.side, before), rowMiddle(layout, column.side, i)];
    const bow = Math.min(18, column.width - 10);
    pen.beginPath();
    pen.moveTo(x, y0 + by * 2);
    pen.bezierCurveTo(x - bow, y0 + by * 3, x - bow, y1 - by * 6, x - 2, y1 - by * 4);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x, y1 - by * 2.5);
    pen.lineTo(x - 5.5, y1 - by * 3.5);
    pen.lineTo(x - 2, y1 - by * 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

/**
 * What was added to the stream: a disc where it joins the rail, its area in proportion to the norm.
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {Column} column
 */
function drawAdded(pen, scene, column) {
  const { layout } = scene;
  const rows = scene.rows[column.side];
  const added = rows.added[column.station.path];
  if (!added) return;
  const band = layout.bands[column.side];
  const slab = layout.columns.find((one) => one.station.kind === "feed_forward" && !one.collapsed);
  const largest = Math.min(9, band.height * 0.36, slab ? slab.width * 0.45 : 9);
  const { kind } = column.station;
  const middle = kind === "embedding" || kind === "feed_forward" ? column.zone + column.width / 2 : column.x - 5;
  for (let i = band.first; i < band.stop; i++) {
    const radius = Math.max(0.8, largest * Math.sqrt(added[i - rows.start] / scene.most));
    pen.globalAlpha = emphasis(scene, column.side, i);
    pen.fillStyle = color(kind === "embedding" ? "key" : kind === "feed_forward" ? "value" : "weight");
    pen.beginPath();
    pen.arc(middle, rowMiddle(layout, column.side, i), radius, 0, 2 * Math.PI);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

/**
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {Column} column
 */
function drawNorm(pen, { layout }, column) {
  const band = layout.bands[column.side];
  pen.strokeStyle = color("strong-line");
  pen.lineWidth = 1;
  const x = Math.round(column.zone + column.width / 2) + 0.5;
  for (const by of [-2, 2]) line(pen, x + by, band.top + 4, x + by, band.top + band.count * band.height - 4);
}

/**
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {Column} column
 */
function drawFold(pen, { layout }, column) {
  const band = layout.bands[column.side];
  pen.fillStyle = color("band");
  box(pen, column.zone + 3, band.top + 2, column.width - 6, band.count * band.height - 4, 5);
  pen.fill();
}

/**
 * The stream at a station: means of neighboring dimensions from top to bottom, blue above and orange
 * below 0.
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {Column} column
 */
function drawStrips(pen, scene, column) {
  const { layout } = scene;
  const last = column.collapsed ? layout.columns.filter((one) => one.x === column.x && one.side === column.side).pop() ?? column : column;
  const rows = scene.rows[column.side];
  const strip = rows.strip[last.station.path];
  const band = layout.bands[column.side];
  const tall = stripHeight(band.height);
  const cell = tall / strip.columns;
  const most = scene.strongest[column.side];
  for (let i = band.first; i < band.stop; i++) {
    const top = rowMiddle(layout, column.side, i) - tall / 2;
    pen.globalAlpha = 1;
    pen.fillStyle = color("ground");
    pen.fillRect(column.x, top, layout.strip, tall);
    const strength = emphasis(scene, column.side, i);
    for (let n = 0; n < strip.columns; n++) {
      const value = strip.data[(i - rows.start) * strip.columns + n];
      pen.fillStyle = color(value < 0 ? "negative" : "positive");
      pen.globalAlpha = strength * Math.min(1, 0.04 + 0.96 * (Math.abs(value) / most));
      pen.fillRect(column.x, top + n * cell, layout.strip, cell + 0.15);
    }
    pen.globalAlpha = strength;
    pen.strokeStyle = color("strong-line");
    pen.lineWidth = 0.6;
    pen.strokeRect(column.x + 0.25, top + 0.25, layout.strip - 0.5, tall - 0.5);
  }
  pen.globalAlpha = 1;
}

/**
 * Return the height of a strip in a row.
 * @param {number} row
 */
export function stripHeight(row) {
  return Math.max(6, Math.min(24, row * 0.78));
}

/**
 * The distribution at the right end: the most probable token of each position, or all classes.
 * @param {Pen} pen
 * @param {Scene} scene
 */
function drawPredictions(pen, scene) {
  const { layout } = scene;
  const side = layout.bands.length - 1;
  const rows = scene.rows[side];
  if (scene.classes) return drawClasses(pen, scene, scene.classes);
  if (!rows.predictions) return;
  const band = layout.bands[side];
  const tall = Math.min(12, band.height * 0.55);
  const bar = BAR;
  pen.font = `${Math.min(13, Math.max(9, band.height * 0.62))}px ${fontFamily()}`;
  pen.textBaseline = "middle";
  for (let i = band.first; i < band.stop; i++) {
    const [best] = rows.predictions[i - rows.start] ?? [];
    if (!best) continue;
    const y = rowMiddle(layout, side, i);
    pen.globalAlpha = emphasis(scene, side, i);
    drawBar(pen, layout.predictions, y - tall / 2, bar, tall, best.probability);
    pen.fillStyle = color("ink");
    pen.fillText(shortened(labelOf(best.name), 12), layout.predictions + bar + 7, y + 0.5);
  }
  pen.globalAlpha = 1;
}

/** Length of a probability of 1. */
const BAR = 56;

/**
 * @param {Pen} pen
 * @param {Scene} scene
 * @param {import("../source.js").Candidate[]} classes
 */
function drawClasses(pen, { layout }, classes) {
  const band = layout.bands[layout.bands.length - 1];
  const step = Math.min(24, (band.count * band.height) / classes.length);
  const column = layout.columns[layout.columns.length - 1];
  pen.font = `12px ${fontFamily()}`;
  pen.textBaseline = "middle";
  classes.forEach(({ name, probability }, n) => {
    const y = band.top + (n + 0.5) * step;
    if (isShown(layout, layout.bands.length - 1, 0)) {
      pen.strokeStyle = color("weight");
      pen.globalAlpha = 0.12 + 0.7 * probability;
      pen.lineWidth = 0.6 + 2 * probability;
      curve(pen, column.x + layout.strip + 1, rowMiddle(layout, layout.bands.length - 1, 0), layout.predictions - 3, y);
    }
    pen.globalAlpha = 1;
    drawBar(pen, layout.predictions, y - 5, BAR, 10, probability);
    pen.fillStyle = color(probability > 0.02 ? "ink" : "muted");
    pen.fillText(shortened(name, 12), layout.predictions + BAR + 7, y + 0.5);
  });
}

/**
 * @param {Pen} pen
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {number} share
 */
function drawBar(pen, x, y, width, height, share) {
  pen.fillStyle = color("band");
  box(pen, x, y, width, height, 2);
  pen.fill();
  pen.fillStyle = color("weight");
  box(pen, x, y, Math.max(1, width * share), height, 2);
  pen.fill();
}
