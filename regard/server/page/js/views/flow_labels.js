// Labels of the flow: tokens or patches in front of the rows, layers above the columns.

import { el, fill, textWidth } from "../dom.js";
import { hasLines } from "../flow_layout.js";
import { shortened } from "./plot.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../flow_layout.js").Layout} Layout
 * @typedef {import("../flow_layout.js").Place} Place
 */

/**
 * @typedef {object} Labels
 * @property {Layout} layout
 * @property {import("../source.js").Flow} flow
 * @property {import("../tokens.js").Tick[][]} ticks by side
 * @property {(name: string, folded: boolean) => void} onfold
 * @property {(place: Place | null) => void} onhover
 * @property {(place: Place) => void} onpick
 */

/**
 * @param {App} app
 * @param {HTMLElement} element
 * @param {Labels} labels
 */
export function flowLabels(app, element, labels) {
  const { layout } = labels;
  const made = layout.bands.flatMap((_, side) => [...tokens(app, labels, side), ...headings(app, labels, side)]);
  fill(element, made, layers(app, labels), captions(app, labels), app.about.image ? wholeImage(app.about.image, labels, app.about.output?.classes?.length ?? 0) : null);
}

/**
 * @param {App} app
 * @param {Labels} labels
 * @param {number} side
 */
function tokens(app, { layout, ticks, onhover, onpick }, side) {
  const band = layout.bands[side];
  const right = layout.labels[side];
  const size = Math.max(9, Math.min(14, band.height * 0.62));
  return ticks[side].slice(band.first, band.stop).map((tick, n) => {
    const position = band.first + n;
    /** @type {Place} */
    const place = { part: "label", side, column: -1, position };
    const patch = side === 0 && app.about.image && position >= app.about.image.first ? patchCanvas(app.about.image, position - app.about.image.first, band.height) : null;
    return el(`span.flow-token${tick.special ? ".special" : ""}`, {
      "data-place": `${side} ${position}`,
      title: tick.label,
      style: { right: `calc(100% - ${right}px)`, top: `${band.top + n * band.height}px`, height: `${band.height}px`, "font-size": `${size}px` },
      onpointerenter: () => onhover(place),
      onpointerleave: () => onhover(null),
      onclick: () => onpick(place),
    }, patch ?? shortened(tick.label, 14));
  });
}

/**
 * The image below the classes; its patches are the rows.
 * @param {import("../source.js").Picture} image
 * @param {Labels} labels
 * @param {number} nClasses
 */
function wholeImage(image, { layout, onhover, onpick }, nClasses) {
  const top = layout.bands[0].top + 26 * nClasses + 14;
  const room = Math.min(150, layout.width - layout.predictions - 4, layout.bands[0].top + layout.bands[0].count * layout.row - top);
  if (room < 60) return null;
  const canvas = cutImage(image, 0, 0, image.width, image.height);
  const placeOf = (/** @type {PointerEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    const [row, column] = [[event.clientY - box.top, box.height, image.n_rows], [event.clientX - box.left, box.width, image.n_columns]].map(([at, size, n]) => Math.max(0, Math.min(n - 1, Math.floor((at / size) * n))));
    return /** @type {Place} */ ({ part: "label", side: 0, column: -1, position: image.first + row * image.n_columns + column });
  };
  canvas.addEventListener("pointermove", (event) => onhover(placeOf(event)));
  canvas.addEventListener("pointerleave", () => onhover(null));
  canvas.addEventListener("click", (event) => onpick(placeOf(/** @type {PointerEvent} */ (event))));
  return el("div.flow-image", { style: { left: `${layout.predictions}px`, top: `${top}px`, width: `${room}px` } }, canvas, el("div.flow-patch", { hidden: true }));
}

/**
 * Outline the patch of a row in the image.
 * @param {import("../source.js").Picture} image
 * @param {Element} element
 * @param {number | undefined} position
 */
export function outlinePatch(image, element, position) {
  const mark = /** @type {HTMLElement | null} */ (element.querySelector(".flow-patch"));
  const n = (position ?? -1) - image.first;
  if (!mark) return;
  mark.hidden = n < 0;
  const [row, column] = [Math.floor(n / image.n_columns) / image.n_rows, (n % image.n_columns) / image.n_columns];
  const styles = { left: column, top: row, width: 1 / image.n_columns, height: 1 / image.n_rows };
  for (const [name, share] of Object.entries(styles)) mark.style.setProperty(name, `${100 * share}%`);
}

/**
 * One patch of the image.
 * @param {import("../source.js").Picture} image
 * @param {number} n
 * @param {number} height
 */
function patchCanvas(image, n, height) {
  const [wide, tall] = [Math.round(image.width / image.n_columns), Math.round(image.height / image.n_rows)];
  const [left, top] = [(n % image.n_columns) * wide, Math.floor(n / image.n_columns) * tall];
  const canvas = cutImage(image, left, top, wide, tall);
  canvas.style.setProperty("height", `${Math.min(24, height - 1)}px`);
  return canvas;
}

/**
 * @param {import("../source.js").Picture} image
 * @param {number} left
 * @param {number} top
 * @param {number} wide
 * @param {number} tall
 */
function cutImage(image, left, top, wide, tall) {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas.patch", { width: wide, height: tall, "aria-hidden": "true" }));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const pixels = pen.createImageData(wide, tall);
  for (let y = 0; y < tall; y++) {
    for (let x = 0; x < wide; x++) {
      const from = 3 * ((top + y) * image.width + left + x);
      pixels.data.set([image.rgb[from], image.rgb[from + 1], image.rgb[from + 2], 255], 4 * (y * wide + x));
    }
  }
  pen.putImageData(pixels, 0, 0);
  return canvas;
}

/**
 * The name of a side, if there are two.
 * @param {App} app
 * @param {Labels} labels
 * @param {number} side
 */
function headings({ t }, { layout, flow }, side) {
  if (flow.sides.length < 2) return [];
  const first = layout.columns.find((column) => column.side === side);
  const across = layout.stacked ? { left: "0" } : { left: side ? "auto" : "0", right: `calc(100% - ${(first?.x ?? 0) - 10}px)`, "text-align": "right" };
  const styles = { ...across, top: `${layout.bands[side].top - 36}px` };
  return [el("h3.flow-side", { style: styles }, t(flow.sides[side].name))];
}

/**
 * @param {App} app
 * @param {Labels} labels
 */
function layers({ t }, { layout, onfold }) {
  return layout.layers.map(({ side, layer, x, width, collapsed }) =>
    el(`button.flow-layer${collapsed ? ".folded" : ""}`, {
      style: { left: `${x + 2}px`, width: `${width - 2}px`, top: `${layout.bands[side].top - 38}px` },
      title: t("flowFold", { layer }),
      "aria-label": t("flowFold", { layer }),
      "aria-expanded": String(!collapsed),
      onclick: () => onfold(`${side} ${layer}`, collapsed),
    }, el("span", {}, width > 70 ? t("layerName", { layer }) : String(layer))));
}

/**
 * The names of the parts, above the first open layer of each side: the short ones if the others do not fit.
 * @param {App} app
 * @param {Labels} labels
 */
function captions({ t }, { layout }) {
  const made = layout.bands.flatMap(({ top }, side) => {
    const named = namedColumns(layout, side);
    const [long, short] = [0, 1].map((i) => apart(named.map(([column, names]) => ({ middle: column.zone + column.width / 2, text: t(names[i] ?? names[0]) }))));
    return (long.length === named.length ? long : short).map(({ middle, text }) => el("span.flow-caption", { style: { left: `${middle}px`, top: `${top - 16}px` } }, text));
  });
  const { top } = layout.bands[layout.bands.length - 1];
  return [...made, el("span.flow-caption.start", { style: { left: `${layout.predictions}px`, top: `${top - 16}px` } }, t("captionPredictions"))];
}

/**
 * Return the names that can stand next to each other.
 * @param {{ middle: number, text: string }[]} names from left to right
 */
function apart(names) {
  let end = -Infinity;
  return names.filter(({ middle, text }) => {
    const half = textWidth(text, 10.5) / 2;
    const fits = middle - half >= end + 9;
    if (fits) end = middle + half;
    return fits;
  });
}

/** @typedef {"captionCross" | "captionSelf" | "captionSelfShort" | "captionFeedForward" | "captionFeedForwardShort" | "captionRecurrent" | "captionTokens" | "captionTokensShort"} Caption */

/**
 * Return the columns that are named, the first of each kind, with a name and maybe a short one.
 * @param {Layout} layout
 * @param {number} side
 */
function namedColumns(layout, side) {
  const seen = new Set();
  return layout.columns.flatMap((column) => {
    const names = column.side === side && !column.collapsed ? captionOf(column.station) : null;
    if (!names || seen.has(names[0])) return [];
    seen.add(names[0]);
    return [/** @type {[import("../flow_layout.js").Column, Caption[]]} */ ([column, names])];
  });
}

/**
 * @param {import("../source.js").Station} station
 * @returns {Caption[] | null}
 */
function captionOf(station) {
  if (station.kind === "cross" || station.kind === "context") return ["captionCross"];
  if (hasLines(station)) return ["captionSelf", "captionSelfShort"];
  if (station.kind === "feed_forward") return ["captionFeedForward", "captionFeedForwardShort"];
  if (station.kind === "recurrent") return ["captionRecurrent"];
  return station.kind === "embedding" && station.added.length ? ["captionTokens", "captionTokensShort"] : null;
}
