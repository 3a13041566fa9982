// Where everything of the flow is drawn: columns from left to right, one row for each position.
//
//   tokens ▌+▌ lines ▌ slab ▌ lines ▌ slab ▌ ··· memory ········
//                                    tokens ▌+▌ lines ▌ lines ▌ slab ▌ ··· predictions
//
// On narrow screens the second side starts at the left again, below the first one.

/**
 * @typedef {import("./source.js").Flow} Flow
 * @typedef {import("./source.js").FlowSide} FlowSide
 * @typedef {import("./source.js").Station} Station
 */

/**
 * A station and the zone in front of it, in which something is added to the stream.
 * @typedef {object} Column
 * @property {Station} station
 * @property {number} side index of its side
 * @property {number} zone left edge of the zone
 * @property {number} width of the zone
 * @property {number} x left edge of the strip
 * @property {boolean} collapsed whether its layer is folded to one narrow column
 */

/**
 * The rows of a side: positions `first` to `stop` from `top` downwards.
 * @typedef {{ first: number, stop: number, top: number, height: number, count: number }} Band
 */

/** @typedef {{ side: number, layer: number, x: number, width: number, collapsed: boolean }} LayerBox */

/**
 * @typedef {object} Layout
 * @property {number} width
 * @property {number} height
 * @property {boolean} stacked whether the second side starts at the left, below the first one
 * @property {number} strip width of a strip
 * @property {number} row height of a row
 * @property {Column[]} columns in the order of computation
 * @property {Band[]} bands by side
 * @property {LayerBox[]} layers
 * @property {number[]} labels right edge of the labels of each side
 * @property {number} predictions left edge of the predictions
 * @property {number[]} stops where the front of a pass rests: after each column, and at the end
 */

/** @typedef {{ width: number, height: number, labels: number[], predictions: number, stacked: boolean, rowRange: [number, number], overflow: number, firsts: number[], folded: Set<string>, unfolded: Set<string> }} Frame */

const HEADER = 40;
const FOLDED = 20;
/** Space below the first side in which its output is carried to the second one, if they are stacked. */
const CARRY = 22;
/** Widths of zones, strips and the gap between sides: the least, a good one, and the most. */
const WIDTHS = {
  lines: [34, 76, 210],
  tokens: [4, 4, 4],
  embedding: [28, 32, 64],
  feed_forward: [24, 32, 56],
  recurrent: [32, 32, 120],
  output: [16, 18, 44],
  strip: [9, 10, 15],
  gap: [16, 18, 56],
};

/**
 * Return a width; `size` goes from 0, the least, over 1 to 2, the most; below 0 on narrow screens.
 * @param {keyof typeof WIDTHS} name
 * @param {number} size
 */
function widthAt(name, size) {
  const [least, good, most] = WIDTHS[name];
  if (size < 0) return least * (1 + 0.45 * size);
  return size < 1 ? least + (good - least) * size : good + (most - good) * (size - 1);
}

/** @param {Station} station */
export function hasLines(station) {
  return station.kind === "self" || station.kind === "cross" || station.kind === "context";
}

/**
 * Lay out two sides next to each other, or, where that would fold layers or leave too little of them,
 * below each other.
 * @param {Flow} flow
 * @param {Frame} frame `stacked` if they have to be below each other
 * @param {(layout: Layout) => boolean} fits whether everything that is shown has the width it needs
 * @returns {Layout}
 */
export function layoutFlow(flow, frame, fits = () => true) {
  const beside = layOut(flow, { ...frame, folded: new Set(), unfolded: new Set() }); // what the reader folds does not move the sides
  const good = beside.width <= frame.width && !beside.layers.some((one) => one.collapsed) && fits(beside);
  return layOut(flow, flow.sides.length < 2 || good ? frame : { ...frame, stacked: true });
}

/**
 * @param {Flow} flow
 * @param {Frame} frame
 * @returns {Layout}
 */
function layOut(flow, frame) {
  const folded = foldedLayers(flow, frame);
  const size = fittingSize(flow, frame, folded);
  const strip = Math.round(widthAt("strip", size));
  const bands = bandsOf(flow, frame);
  /** @type {Layout} */
  const made = { width: 0, height: 0, stacked: frame.stacked && flow.sides.length > 1, strip, row: bands[0].height, columns: [], bands, layers: [], labels: [], predictions: 0, stops: [] };
  let x = 0;
  flow.sides.forEach((side, s) => {
    if (made.stacked) x = 0;
    x += frame.labels[s] + (s && !made.stacked ? Math.round(widthAt("gap", size)) : 0);
    made.labels.push(x - 6);
    for (const station of side.stations) x = addColumn(made, station, s, x, size, folded);
  });
  made.predictions = x + 14;
  made.width = Math.max(frame.width, x + 14 + frame.predictions, ...made.columns.map((column) => column.x + strip + 14));
  made.height = Math.max(...bands.map((band) => band.top + band.count * band.height)) + 8;
  made.stops = [...made.columns.map((column) => column.x + strip + 1), made.width];
  return made;
}

/**
 * Add a column and return the x after it.
 * @param {Layout} made
 * @param {Station} station
 * @param {number} side
 * @param {number} x
 * @param {number} size
 * @param {Set<string>} folded
 */
function addColumn(made, station, side, x, size, folded) {
  const { layer } = station;
  const collapsed = layer !== null && folded.has(`${side} ${layer}`);
  const last = made.layers[made.layers.length - 1];
  const opens = layer !== null && !(last && last.side === side && last.layer === layer);
  const width = collapsed ? (opens ? FOLDED : 0) : Math.round(widthOf(station, size));
  if (collapsed && !opens) { // one strip, that of the layer's last station
    const column = made.columns[made.columns.length - 1];
    made.columns.push({ ...column, station, width: 0 });
    return x;
  }
  made.columns.push({ station, side, zone: x, width, x: x + width, collapsed });
  const stop = x + width + made.strip;
  if (layer === null) return stop;
  if (opens) made.layers.push({ side, layer, x, width: stop - x, collapsed });
  else made.layers[made.layers.length - 1].width = stop - made.layers[made.layers.length - 1].x;
  return stop;
}

/**
 * @param {Station} station
 * @param {number} size
 */
function widthOf(station, size) {
  return widthAt(hasLines(station) ? "lines" : /** @type {keyof typeof WIDTHS} */ (station.kind), size);
}

/**
 * Return the width of all columns at a size.
 * @param {Flow} flow
 * @param {Frame} frame
 * @param {Set<string>} folded
 * @param {number} size
 */
function totalWidth(flow, frame, folded, size) {
  const strip = widthAt("strip", size);
  const stacked = frame.stacked && flow.sides.length > 1;
  const widths = flow.sides.map((side, s) => {
    let sum = frame.labels[s] + (s && !stacked ? widthAt("gap", size) : 0) + (s === flow.sides.length - 1 ? 14 + frame.predictions : stacked ? 14 : 0);
    const seen = new Set();
    for (const station of side.stations) {
      const hidden = station.layer !== null && folded.has(`${s} ${station.layer}`);
      if (!hidden) sum += widthOf(station, size) + strip;
      else if (!seen.has(station.layer)) sum += FOLDED + strip;
      seen.add(station.layer);
    }
    return sum;
  });
  return stacked ? Math.max(...widths) : widths.reduce((sum, one) => sum + one, 0);
}

/** @param {Frame} frame */
function leastSize(frame) {
  return frame.stacked ? -1 : 0;
}

/**
 * Return whether one of two stacked sides is narrow enough.
 * @param {Flow} flow
 * @param {Frame} frame
 * @param {Set<string>} folded
 * @param {number} side
 */
function sideFits(flow, frame, folded, side) {
  const only = { ...flow, sides: flow.sides.map((one, s) => (s === side ? one : { ...one, stations: [] })) };
  return totalWidth(only, frame, folded, leastSize(frame)) <= frame.width;
}

/**
 * Return the layers that are folded: those the reader chose, and as many in the middle as it takes
 * for the rest to fit.
 * @param {Flow} flow
 * @param {Frame} frame
 */
function foldedLayers(flow, frame) {
  const folded = new Set(frame.folded);
  const candidates = flow.sides.flatMap((side, s) => {
    const layers = [...new Set(side.stations.map((one) => one.layer).filter((layer) => layer !== null))];
    const middle = (layers.length - 1) / 2;
    return layers.map((layer) => ({ name: `${s} ${layer}`, ends: Math.abs(/** @type {number} */ (layer) - middle) / Math.max(1, middle), last: layers.length < 2 || layer === layers[layers.length - 1] }));
  });
  const order = candidates.filter(({ name, last }) => !last && !frame.unfolded.has(name) && !folded.has(name)).sort((a, b) => a.ends - b.ends);
  for (const { name, ends } of order) {
    if (totalWidth(flow, frame, folded, leastSize(frame)) <= frame.width || (ends === 1 && !frame.stacked)) break;
    if (frame.stacked && sideFits(flow, frame, folded, Number(name.split(" ")[0]))) continue; // the other side is too wide
    folded.add(name);
  }
  return folded;
}

/**
 * Return the size, from 0 to 2, at which the columns fill the frame.
 * @param {Flow} flow
 * @param {Frame} frame
 * @param {Set<string>} folded
 */
function fittingSize(flow, frame, folded) {
  let [low, high] = [leastSize(frame), 2];
  for (let i = 0; i < 20; i++) {
    const middle = (low + high) / 2;
    if (totalWidth(flow, frame, folded, middle) <= frame.width - 8) low = middle;
    else high = middle;
  }
  return low;
}

/**
 * Return the rows of each side: all of them, or a window if they do not fit.
 * @param {Flow} flow
 * @param {Frame} frame
 * @returns {Band[]}
 */
function bandsOf(flow, frame) {
  const counts = flow.sides.map((side) => side.n_tokens);
  const [least, most] = frame.rowRange;
  const room = frame.height - flow.sides.length * HEADER - 8;
  const total = counts.reduce((sum, n) => sum + n, 0);
  const height = Math.max(least, Math.min(most, Math.floor(room / total)));
  const fits = total * height <= room + frame.overflow;
  const shown = fits ? counts : shareRows(counts, Math.max(4 * counts.length, Math.floor(room / height)));
  let top = 0;
  return counts.map((n, s) => {
    top += HEADER + (s && frame.stacked ? CARRY : 0);
    const first = Math.max(0, Math.min(frame.firsts[s] ?? 0, n - shown[s]));
    const band = { first, stop: first + shown[s], top, height, count: shown[s] };
    top += shown[s] * height;
    return band;
  });
}

/**
 * Share rows between two sides; what one does not need, the other gets.
 * @param {number[]} counts
 * @param {number} rows
 */
function shareRows(counts, rows) {
  const half = Math.max(2, Math.floor(rows / counts.length));
  const spare = counts.reduce((sum, n) => sum + Math.max(0, half - n), 0);
  return counts.map((n) => Math.min(n, half + (n > half ? spare : 0)));
}

/**
 * Return the middle of a position's row; positions outside the window are at its edge.
 * @param {Layout} layout
 * @param {number} side
 * @param {number} position
 */
export function rowMiddle({ bands }, side, position) {
  const band = bands[side];
  const row = Math.max(-0.4, Math.min(band.count - 0.6, position - band.first));
  return band.top + (row + 0.5) * band.height;
}

/**
 * Return where the output of a position of the encoder is read: at its rail, or, if the sides are
 * stacked, above the decoder, from left to right.
 * @param {Layout} layout
 * @param {Column} column the cross-attention that reads it
 * @param {number} position
 */
export function memoryPoint(layout, column, position) {
  if (!layout.stacked) return { x: column.zone, y: rowMiddle(layout, 0, position) };
  const band = layout.bands[0];
  const share = (Math.max(band.first, Math.min(band.stop - 1, position)) - band.first + 0.5) / band.count;
  return { x: column.zone + 1 + share * (column.width - 8), y: carryLine(layout) };
}

/**
 * Return the height of the line that carries the output of the encoder to a decoder below it.
 * @param {Layout} layout
 */
export function carryLine({ bands }) {
  return bands[0].top + bands[0].count * bands[0].height + CARRY / 2;
}

/**
 * Return how far a pass has come, and the parts of the picture, from top to bottom, that it has reached
 * up to an x each: one, or two if the sides are stacked.
 * @param {Layout} layout
 * @param {number} at stations that are done
 * @returns {{ front: number, parts: { top: number, height: number, x: number }[] }}
 */
export function reachedParts(layout, at) {
  const { stops, columns, stacked, width, height } = layout;
  const n = Math.min(stops.length - 1, Math.floor(at));
  const side = columns[Math.min(n, columns.length - 1)].side;
  const starts = n === 0 || (stacked && n < columns.length && columns[n - 1].side !== side);
  const before = starts ? columns[n].zone : stops[n - 1];
  const front = before + (stops[n] - before) * Math.min(1, at - n);
  if (!stacked) return { front, parts: [{ top: 0, height, x: front }] };
  const split = carryLine(layout) - CARRY / 2 + 2;
  return { front, parts: [{ top: 0, height: split, x: side === 0 ? front : width }, { top: split, height: height - split, x: side === 0 ? 0 : front }] };
}

/**
 * @param {Layout} layout
 * @param {number} side
 * @param {number} position
 */
export function isShown({ bands }, side, position) {
  return position >= bands[side].first && position < bands[side].stop;
}

/**
 * What is at a point: a strip, a zone, a label or a prediction of a position.
 * @typedef {{ part: "strip" | "zone" | "label" | "prediction", side: number, column: number, position: number }} Place
 */

/**
 * @param {Layout} layout
 * @param {number} x
 * @param {number} y
 * @returns {Place | null}
 */
export function placeAt(layout, x, y) {
  const side = layout.bands.findIndex((band) => y >= band.top && y < band.top + band.count * band.height);
  if (side < 0) return null;
  const band = layout.bands[side];
  const position = band.first + Math.floor((y - band.top) / band.height);
  const last = side === layout.bands.length - 1;
  if (last && x >= layout.predictions - 8) return { part: "prediction", side, column: layout.columns.length - 1, position };
  const column = layout.columns.findIndex((one) => one.side === side && x >= one.zone && x < one.x + layout.strip + 2 && !(one.collapsed && one.width === 0));
  if (column < 0) return x <= layout.labels[side] && x >= layout.labels[side] - 120 ? { part: "label", side, column: -1, position } : null;
  return { part: x >= layout.columns[column].x - 2 ? "strip" : "zone", side, column, position };
}
