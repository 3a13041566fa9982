// The figure of position vectors: a map of all of them, and one dimension as a wave.

import { color, tone } from "../color.js";
import { vectorsOf } from "../course/parts.js";
import { el, fill, shape, sharpen } from "../dom.js";
import { full, short } from "../format.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("./lesson_figures.js").FigureContext} FigureContext
 */

/** The base of the wavelengths in the paper. */
const BASE = 10000;

/**
 * Return the wavelength of a dimension of sinusoidal positions.
 * @param {number} i
 * @param {number} width of the vectors
 */
export function wavelength(i, width) {
  return 2 * Math.PI * BASE ** ((i - (i % 2)) / width);
}

/**
 * @param {App} app
 * @param {FigureContext} context
 */
export async function waves(app, { width, height, own, report }) {
  const { t } = app;
  const n = app.about.tokens.source?.length ?? 0;
  const vectors = await vectorsOf(app, "encoder.embedding.positions", n);
  const d = vectors[0].length;
  const wide = Math.min(760, width);
  const tall = Math.min(260, Math.max(110, height - 260));
  const map = /** @type {HTMLCanvasElement} */ (document.createElement("canvas"));
  map.setAttribute("role", "img");
  map.setAttribute("aria-label", t("figureWaves"));
  const curve = el("div.wave");
  const title = el("p");
  const number = el("output.digits");
  const slider = el("input", { type: "range", min: 0, max: d - 1, step: 1, value: own.dimension ?? 8, "aria-label": t("figureDimension"), oninput: () => show(Number(slider.value)) });
  const show = (/** @type {number} */ i) => {
    paint(map, vectors, wide, tall, i);
    const w = wavelength(i, d);
    fill(number, `${i} · ${t("figureWavelength", { w: short(w, 1) })}`);
    fill(title, t("figureAlong", { i }));
    fill(curve, drawWave(vectors.map((vector) => vector[i]), wide, t("figureAlong", { i })));
    report({ dimension: i, wavelength: w });
  };
  paint(map, vectors, wide, tall, 0);
  show(own.dimension ?? 8);
  return { title: t("figureWaves"), body: [map, el("label.slider", {}, t("figureDimension"), " ", slider, " ", number), title, curve] };
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array[]} vectors
 * @param {number} width
 * @param {number} height
 * @param {number} marked
 */
function paint(canvas, vectors, width, height, marked) {
  const pen = sharpen(canvas, width, height);
  const [across, down] = [width / vectors[0].length, height / vectors.length];
  vectors.forEach((vector, i) => {
    vector.forEach((x, j) => {
      pen.fillStyle = tone(x < 0 ? "negative" : "positive", 0.6 * Math.abs(x));
      pen.fillRect(j * across, i * down, across + 0.5, down + 0.5);
    });
  });
  pen.strokeStyle = color("ink");
  pen.lineWidth = 1.5;
  pen.strokeRect(marked * across - 0.5, 0.75, Math.max(3, across + 1), height - 1.5);
}

/**
 * One dimension along the positions, as points joined by lines.
 * @param {number[]} values
 * @param {number} width
 * @param {string} label
 */
function drawWave(values, width, label) {
  const height = 110;
  const [left, top] = [26, 8];
  const x = (/** @type {number} */ i) => left + ((width - left - 8) * i) / Math.max(1, values.length - 1);
  const y = (/** @type {number} */ value) => top + ((height - 2 * top - 14) * (1 - value)) / 2;
  const path = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const ticks = [1, 0, -1].map((value) => [shape("path.hairlines", { d: `M${left} ${y(value)}H${width - 8}` }), shape("text.number", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value, 0))]);
  const places = values.map((_, i) => (i % 5 === 0 ? shape("text.number", { x: x(i), y: height - 2, "text-anchor": "middle" }, String(i)) : null));
  const points = values.map((value, i) => shape("circle.weights", { cx: x(i), cy: y(value), r: 3, "data-value": value }, shape("title", {}, `${i}: ${full(value)}`)));
  return shape("svg", { width, height, role: "img", "aria-label": label }, ticks.flat(), shape("path.curve", { d: path, "stroke-width": 1.5 }), points, places);
}
