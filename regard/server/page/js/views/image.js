// Attention over an image: which patches one query looks at.

import { color } from "../color.js";
import { el, fill, sharpen } from "../dom.js";
import { short } from "../format.js";
import { largest, row } from "../matrix.js";

/**
 * @typedef {import("./plot.js").Plot} Plot
 * @typedef {import("../source.js").Picture} Picture
 */

/**
 * How the picture of a comparison differs: `tone` is the weight of the full color for a query, on both
 * sides; a difference has the other image, which is laid over the first.
 * @typedef {{ tone?: (query: number) => number, other?: Picture }} Compared
 */

/**
 * Draw the image twice: to select the query patch, and colored by the weights of the keys.
 * @param {Element} element
 * @param {Plot} plot
 * @param {Picture} image
 * @param {Compared} [compared]
 */
export function draw(element, plot, image, { tone, other } = {}) {
  const gap = plot.width > 460 ? 28 : 16;
  const half = Math.floor((plot.width - gap) / 2) - 1; // the width is rounded: both must fit next to each other
  const side = Math.floor(Math.max(plot.alone ? Math.min(half, 172) : 100, Math.min(half, plot.height - 96, 420)));
  const style = { "max-width": `${Math.max(side, Math.min(half, 300))}px` }; // titles must not push the other picture aside
  const scale = { x: side / image.width, y: (side * image.height) / image.width / image.height };
  const size = { wide: side, tall: Math.round(image.height * scale.y), image, photo: other ? blend(photoOf(image), photoOf(other)) : photoOf(image) };
  const [asks, answers] = [0, 1].map(() => /** @type {any} */ (el("canvas", {})));
  const special = specials(plot, image);
  const given = el("p.note");
  fill(element, el("div.pictures", { style: { "column-gap": `${gap}px` } },
    el("div", { style }, el("p.query", {}, plot.asks), asks, special),
    el("div", { style }, el("p.key", {}, plot.answers), answers, given)));
  listen(asks, size, (patch) => plot.onhover(patch, -1), (patch) => plot.onpick(patch, -1));
  listen(answers, size, (patch) => plot.onhover(-1, patch), (patch) => plot.onpick(-1, patch));
  const select = (/** @type {number} */ query, /** @type {number} */ key) => {
    const line = row(plot.table, query);
    const most = tone?.(query) ?? fullTone(line.subarray(image.first));
    paintAsking(asks, size, query);
    const pen = fadedPhotograph(answers, size);
    if (other) paintSigns(pen, size, line.subarray(image.first), plot.range[1]);
    else if (!plot.off) paintWeights(pen, size, line.subarray(image.first), most);
    grid(pen, size);
    frame(pen, size, query, "query");
    frame(pen, size, key, "key");
    for (const button of special.querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.dataset.i) === query));
    if (other) return fill(given, plot.columns.slice(0, image.first).map(({ label }, i) => `${label} ${signed(line[i])} `));
    const outside = Array.from(line.subarray(0, image.first)).reduce((a, b) => a + b, 0);
    const full = plot.t("fullColor", { x: short(most), even: short(1 / (line.length - image.first)) });
    fill(given, full, image.first ? [el("br"), plot.t("weightOutsidePatches", { x: short(outside) })] : "");
    return undefined;
  };
  select(plot.query, plot.key);
  return select;
}

/** @typedef {{ wide: number, tall: number, image: Picture, photo: HTMLCanvasElement }} Size */

/**
 * @param {Picture} image
 * @returns {HTMLCanvasElement}
 */
export function photoOf({ width, height, rgb }) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const made = pen.createImageData(width, height);
  for (let i = 0; i < width * height; i++) made.data.set([rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2], 255], 4 * i);
  pen.putImageData(made, 0, 0);
  return canvas;
}

/**
 * Return two images laid over each other.
 * @param {HTMLCanvasElement} below
 * @param {HTMLCanvasElement} above
 */
function blend(below, above) {
  const pen = /** @type {CanvasRenderingContext2D} */ (below.getContext("2d"));
  pen.globalAlpha = 0.5;
  pen.drawImage(above, 0, 0, below.width, below.height);
  return below;
}

/**
 * Buttons for tokens that are not patches.
 * @param {Plot} plot
 * @param {Picture} image
 */
function specials(plot, image) {
  const buttons = plot.rows.slice(0, image.first).map((tick, i) =>
    el("button.quiet", { "data-i": i, onclick: () => plot.onpick(i, -1), onpointerenter: () => plot.onhover(i, -1) }, tick.label));
  return el("p.note.specials", {}, buttons);
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Size} size
 */
function photograph(canvas, { wide, tall, photo }) {
  const pen = sharpen(canvas, wide, tall);
  pen.imageSmoothingEnabled = photo.width >= 96;
  pen.drawImage(photo, 0, 0, wide, tall);
  return pen;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Size} size
 * @param {number} query
 */
function paintAsking(canvas, size, query) {
  const pen = photograph(canvas, size);
  grid(pen, size);
  frame(pen, size, query, "query");
}

/**
 * Draw the image faded, behind colors.
 * @param {HTMLCanvasElement} canvas
 * @param {Size} size
 */
function fadedPhotograph(canvas, size) {
  const pen = photograph(canvas, size);
  pen.fillStyle = color("ground");
  pen.globalAlpha = 0.55;
  pen.fillRect(0, 0, size.wide, size.tall);
  pen.globalAlpha = 1;
  return pen;
}

/**
 * Color the patches by their weights.
 * @param {CanvasRenderingContext2D} pen
 * @param {Size} size
 * @param {Float32Array} line
 * @param {number} most the weight of the full color
 */
function paintWeights(pen, { wide, tall, image }, line, most) {
  const [w, h] = [wide / image.n_columns, tall / image.n_rows];
  pen.fillStyle = color("key");
  for (let i = 0; i < line.length; i++) {
    pen.globalAlpha = most > 0 ? (0.92 * Math.max(0, line[i])) / most : 0;
    pen.fillRect((i % image.n_columns) * w, Math.floor(i / image.n_columns) * h, w, h);
  }
  pen.globalAlpha = 1;
}

/**
 * Mark the patches by their differences: discs where the second is larger, rings where the first is.
 * @param {CanvasRenderingContext2D} pen
 * @param {Size} size
 * @param {Float32Array} line
 * @param {number} most the difference of the largest disc
 */
function paintSigns(pen, { wide, tall, image }, line, most) {
  const [w, h] = [wide / image.n_columns, tall / image.n_rows];
  const full = 0.46 * Math.min(w, h);
  line.forEach((x, i) => {
    const r = full * Math.sqrt(Math.min(1, Math.abs(x) / most));
    if (!(r > 0.4)) return; // also where it is not known
    const [across, down] = [((i % image.n_columns) + 0.5) * w, (Math.floor(i / image.n_columns) + 0.5) * h];
    const thick = Math.min(r, Math.max(1.6, 0.12 * full));
    pen.beginPath();
    pen.arc(across, down, x > 0 ? r : r - thick / 2, 0, 2 * Math.PI);
    Object.assign(pen, { fillStyle: color("positive"), strokeStyle: color("negative"), lineWidth: thick });
    if (x > 0) pen.fill();
    else pen.stroke();
  });
}

/** @param {number} x */
function signed(x) {
  return x > 0 ? `+${short(x)}` : short(x);
}

/**
 * Return the weight that gets the full color: the largest, but at least three equal shares, so that
 * a query that looks everywhere does not cover the image.
 * @param {Float32Array} line
 */
export function fullTone(line) {
  return Math.max(largest(line), 3 / line.length);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Size} size
 */
function grid(pen, { wide, tall, image }) {
  pen.strokeStyle = "rgba(128,128,128,.45)";
  pen.lineWidth = 0.6;
  pen.beginPath();
  for (let i = 0; i <= image.n_rows; i++) pen.moveTo(0, (i * tall) / image.n_rows), pen.lineTo(wide, (i * tall) / image.n_rows);
  for (let j = 0; j <= image.n_columns; j++) pen.moveTo((j * wide) / image.n_columns, 0), pen.lineTo((j * wide) / image.n_columns, tall);
  pen.stroke();
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Size} size
 * @param {number} position
 * @param {string} role
 */
function frame(pen, { wide, tall, image }, position, role) {
  const patch = position - image.first;
  if (patch < 0) return;
  const [w, h] = [wide / image.n_columns, tall / image.n_rows];
  const [x, y] = [(patch % image.n_columns) * w, Math.floor(patch / image.n_columns) * h];
  pen.strokeStyle = "#ffffff";
  pen.lineWidth = 5;
  pen.strokeRect(x + 1.5, y + 1.5, w - 3, h - 3);
  pen.strokeStyle = color(role);
  pen.lineWidth = 3;
  pen.setLineDash(role === "key" ? [4, 3] : []);
  pen.strokeRect(x + 1.5, y + 1.5, w - 3, h - 3);
  pen.setLineDash([]);
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Size} size
 * @param {(position: number) => void} onhover
 * @param {(position: number) => void} onpick
 */
function listen(canvas, { image }, onhover, onpick) {
  const at = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor(((event.clientX - box.left) / box.width) * image.n_columns);
    const i = Math.floor(((event.clientY - box.top) / box.height) * image.n_rows);
    return i < 0 || j < 0 || i >= image.n_rows || j >= image.n_columns ? -1 : image.first + i * image.n_columns + j;
  };
  canvas.addEventListener("pointermove", (event) => {
    const patch = at(event);
    if (patch >= 0) onhover(patch);
  });
  canvas.addEventListener("pointerleave", () => onhover(-1));
  canvas.addEventListener("click", (event) => {
    const patch = at(event);
    if (patch >= 0) onpick(patch);
  });
}
