// Drawing of thumbnails: positions, pictures, marks.

import { color, ramp } from "../color.js";
import { fontFamily, sharpen } from "../dom.js";
import { editedSite } from "../edits.js";
import { largest } from "../matrix.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Site} Site
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {{ site: Site, head: number }} Place
 * @typedef {import("../source.js").Measures} Measures
 * @typedef {Exclude<typeof import("../state.js").SORTS[number], "layer">} Measure
 * @typedef {ReturnType<typeof layOut>} Layout
 */

const GUTTER = 18;

/**
 * Thumbnails and measures loaded so far, by path.
 * @typedef {{ pictures: Map<string, Matrix[]>, measures: Map<string, Measures[]> }} Known
 */

/**
 * Return a measure of a head; undefined until it is loaded.
 * @param {Known} known
 * @param {Place} place
 * @param {Measure} name
 */
export function measureOf(known, { site, head }, name) {
  const found = known.measures.get(site.path)?.[head];
  return name === "alignment" ? found && found.peak * found.variety : found?.[name];
}

/**
 * @param {App} app
 * @param {number} width
 * @param {Site[]} sites
 */
export function layOut(app, width, sites) {
  const columns = Math.max(...sites.map((site) => site.n_heads));
  const plain = app.store.state.sort === "layer";
  const left = plain && sites.length > 1 ? GUTTER : 0;
  const gap = columns > 8 ? 3 : 5;
  const room = width - left;
  const size = Math.max(8, Math.min(88, Math.floor((room + gap) / columns) - gap));
  return { columns, left, gap, size, under: plain ? 0 : 4, rows: sites.length };
}

/**
 * Return the size of a group in pixels.
 * @param {Layout} layout
 * @param {(Place | null)[]} places
 * @returns {[number, number]}
 */
function extent({ columns, left, gap, size, under }, places) {
  const rows = Math.ceil(places.length / columns);
  return [left + columns * (size + gap) - gap + 4, rows * (size + gap + under) - gap + 6];
}

/**
 * Call a function with the position of each thumbnail.
 * @param {Layout} layout
 * @param {(Place | null)[]} places
 * @param {(place: Place, x: number, y: number, n: number) => void} f
 */
function eachPlace({ columns, left, gap, size, under }, places, f) {
  places.forEach((place, n) => place && f(place, left + 1 + (n % columns) * (size + gap), 2 + Math.floor(n / columns) * (size + gap + under), n));
}

/**
 * Draw the thumbnails of a group with frames around the open and the edited heads.
 * @param {App} app
 * @param {HTMLCanvasElement} canvas
 * @param {HTMLCanvasElement} still
 * @param {Layout} layout
 * @param {(Place | null)[]} places
 */
export function marks(app, canvas, still, layout, places) {
  const [wide, high] = extent(layout, places);
  const pen = sharpen(canvas, wide, high);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(still, 0, 0, wide, high);
  const { state } = app.store;
  const edited = editedHeads(app);
  eachPlace(layout, places, ({ site, head }, x, y) => {
    if (edited.has(`${site.path}:${head}`) || edited.has(`${site.path}:*`)) outline(pen, x, y, layout.size, "edit", [3, 2]);
    if (site.path === state.site && head === state.head) outline(pen, x, y, layout.size, "ink", []);
  });
}

/**
 * @param {App} app
 * @param {HTMLCanvasElement} canvas
 * @param {Layout} layout
 * @param {(Place | null)[]} places
 * @param {Known} known
 */
export function pictures(app, canvas, layout, places, known) {
  const { columns, left, size, under } = layout;
  const pen = sharpen(canvas, ...extent(layout, places));
  pen.imageSmoothingEnabled = false;
  pen.font = `10px ${fontFamily()}`;
  pen.textBaseline = "middle";
  eachPlace(layout, places, (place, x, y, n) => {
    const { site, head } = place;
    const picture = known.pictures.get(site.path)?.[head];
    if (picture) pen.drawImage(thumbnailImage(picture), x, y, size, size);
    pen.strokeStyle = color("hairline");
    pen.lineWidth = 1;
    pen.strokeRect(x - 0.5, y - 0.5, size + 1, size + 1);
    if (under) underline(app, known, pen, place, [x, y + size + 2, size]);
    if (left && n % columns === 0) {
      pen.fillStyle = color("muted");
      pen.fillText(String(site.layer ?? ""), 0, y + size / 2);
    }
  });
}

/**
 * Return the edited heads; "*" for all heads of a site.
 * @param {App} app
 */
export function editedHeads({ store }) {
  return new Set(store.state.edits.map((edit) => (editedSite(edit) ? `${editedSite(edit)}:${("head" in edit ? edit.head : null) ?? "*"}` : "")));
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {number} size
 * @param {string} role
 * @param {number[]} dash
 */
function outline(pen, x, y, size, role, dash) {
  pen.strokeStyle = color(role);
  pen.lineWidth = 2;
  pen.setLineDash(dash);
  pen.strokeRect(x - 1, y - 1, size + 2, size + 2);
  pen.setLineDash([]);
}

/**
 * Draw the sort measure as a line below a thumbnail.
 * @param {App} app
 * @param {Known} known
 * @param {CanvasRenderingContext2D} pen
 * @param {Place} place
 * @param {[number, number, number]} where left, top and width
 */
function underline(app, known, pen, place, [x, y, size]) {
  const { sort } = app.store.state;
  const measure = sort === "layer" ? undefined : measureOf(known, place, sort);
  if (sort === "layer" || measure === undefined) return;
  const group = app.sites.filter((one) => one.group === place.site.group);
  const all = group.flatMap((site) => Array.from({ length: site.n_heads }, (_, head) => measureOf(known, { site, head }, sort) ?? 0));
  pen.fillStyle = color("muted");
  pen.fillRect(x, y, Math.max(1, (size * measure) / (Math.max(...all) || 1)), 2);
}

/** @type {WeakMap<Matrix, { canvas: HTMLCanvasElement, theme: string }>} */
const IMAGES = new WeakMap();

/**
 * Return a table as a picture with one pixel per cell. Each head has its own contrast: its largest
 * weight is darkest, because the pooled weights of a long text are all small.
 * @param {Matrix} table
 */
function thumbnailImage(table) {
  const theme = color("ground");
  const known = IMAGES.get(table);
  if (known?.theme === theme) return known.canvas;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [table.columns, table.rows];
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = pen.createImageData(table.columns, table.rows);
  const tones = ramp("weight");
  const most = largest(table.data) || 1;
  table.data.forEach((x, i) => {
    const from = 4 * Math.min(255, Math.round(255 * (Math.max(0, x) / most) ** 0.7));
    image.data.set(tones.subarray(from, from + 4), 4 * i);
  });
  pen.putImageData(image, 0, 0);
  IMAGES.set(table, { canvas, theme });
  return canvas;
}
