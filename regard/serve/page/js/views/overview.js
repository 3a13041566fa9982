// All heads at a glance: one small picture each, layer by layer or sorted by a measure.

import { matrix } from "../attention.js";
import { colour, ramp } from "../colour.js";
import { el, fill, sharpen } from "../dom.js";
import { plainNumber, short } from "../format.js";
import { paneHead } from "./pane.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Site} Site
 * @typedef {import("../attention.js").Matrix} Matrix
 * @typedef {{ site: Site, head: number }} Place
 * @typedef {import("../source.js").Measures} Measures
 * @typedef {Exclude<typeof SORTS[number], "layer">} Measure
 */

const SORTS = /** @type {const} */ (["layer", "entropy", "distance", "diagonal", "peak", "alignment"]);
/** Measures of which little is told first. */
const UPWARDS = ["entropy", "distance"];
const GUTTER = 18;

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function overview(app) {
  const body = el("div.groups");
  const note = el("p.note", { "aria-live": "polite" });
  const sort = el("select", { onchange: () => app.store.set({ sort: sort.value }) }, SORTS.map((one) => el("option", { value: one }, app.say(`sort_${one}`))));
  const tools = el("label.quiet", { title: app.say("sortHelp") }, app.say("sort"), " ", sort);
  const element = el("section.pane.overview", { "aria-label": app.say("overview") },
    paneHead(app, "overview", tools, () => tableOf(app, known)), body, note);
  /** @type {Known} */
  const known = { pictures: new Map(), measures: new Map() };
  const state = () => app.store.state;
  let marked = "";
  let groups = /** @type {ReturnType<typeof group>[]} */ ([]);
  const build = () => {
    groups = groupsOf(app).map(([name, sites]) => group(app, name, sites, known, (place) => tell(app, known, note, place)));
    fill(body, groups.map((one) => one.element));
    tell(app, known, note, null);
  };
  const repaint = () => {
    groups.forEach((one) => one.paint());
    tell(app, known, note, null);
  };
  return {
    element,
    update: (changed) => {
      if (changed.has("all")) {
        build();
        load(app, known, repaint, build); // until then what was there stays
      }
      if (["sort", "pane", "theme", "size"].some((one) => changed.has(one))) build();
      const marks = `${state().site} ${state().head} ${[...editedHeads(app)]}`;
      const anew = ["all", "sort", "pane", "theme", "size"].some((one) => changed.has(one));
      if (anew || marks !== marked) {
        marked = marks;
        sort.value = app.store.state.sort;
        repaint();
      }
    },
  };
}

/**
 * What has arrived of the heads of each site, by its path.
 * @typedef {{ pictures: Map<string, Matrix[]>, measures: Map<string, Measures[]> }} Known
 */

/**
 * A head's measure; undefined until it is known.
 * @param {Known} known
 * @param {Place} place
 * @param {Measure} name
 */
function measureOf(known, { site, head }, name) {
  const found = known.measures.get(site.path)?.[head];
  return name === "alignment" ? found && found.peak * found.variety : found?.[name];
}

/**
 * Sites of one kind together, in the order of computation.
 * @param {App} app
 * @returns {[string, Site[]][]}
 */
function groupsOf({ sites }) {
  /** @type {Map<string, Site[]>} */
  const found = new Map();
  for (const site of sites) found.set(site.group, [...(found.get(site.group) ?? []), site]);
  return [...found];
}

/**
 * @param {App} app
 * @param {string} group
 */
export function groupTitle(app, group) {
  if (app.about.image && group === "encoder.layers.*.self") return app.say("kindImage");
  if (group === "encoder.layers.*.self") return app.say("kindEncoder");
  if (group === "decoder.layers.*.self") return app.say("kindDecoder");
  if (group === "decoder.layers.*.cross") return app.say("kindCross");
  return group === "decoder.cross" ? app.say("kindAlignment") : group;
}

/**
 * One kind of attention: a canvas of small pictures.
 * @param {App} app
 * @param {string} name
 * @param {Site[]} sites
 * @param {Known} known
 * @param {(place: Place | null) => void} tellAbout
 */
function group(app, name, sites, known, tellAbout) {
  const canvas = /** @type {any} */ (el("canvas", { tabindex: 0, role: "img" }));
  const title = groupTitle(app, name);
  canvas.setAttribute("aria-label", app.say("overviewLabel", { kind: title, layers: sites.length, heads: sites[0].n_heads }));
  const element = el("div.group", {}, el("h3", {}, title), canvas);
  let wide = 0; // asked for once: a group that is as wide as its column is built anew when that changes
  const layout = () => layOut(app, (wide ||= element.clientWidth) || 260, sites);
  const places = sorted(app, sites, known);
  const at = (/** @type {MouseEvent} */ event) => {
    const { size, left, columns, gap, under } = layout();
    const box = canvas.getBoundingClientRect();
    const j = Math.floor((event.clientX - box.left - left) / (size + gap));
    const i = Math.floor((event.clientY - box.top) / (size + gap + under));
    return j >= 0 && j < columns ? (places[i * columns + j] ?? null) : null;
  };
  canvas.addEventListener("pointermove", (/** @type {MouseEvent} */ event) => tellAbout(at(event)));
  canvas.addEventListener("pointerleave", () => tellAbout(null));
  canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const place = at(event);
    if (place) app.store.set({ site: place.site.path, head: place.head, ...(app.store.state.pane === "overview" ? { pane: "pattern" } : {}) });
  });
  return { element, paint: () => paint(app, canvas, layout(), places, known) };
}

/**
 * @param {App} app
 * @param {Site[]} sites
 * @param {Known} known
 * @returns {(Place | null)[]} row by row; null where a layer has fewer heads than others
 */
function sorted(app, sites, known) {
  const { sort } = app.store.state;
  const columns = Math.max(...sites.map((site) => site.n_heads));
  const all = sites.flatMap((site) => Array.from({ length: columns }, (_, head) => (head < site.n_heads ? { site, head } : null)));
  if (sort === "layer" || sites.some((site) => !known.measures.has(site.path))) return all;
  const up = UPWARDS.includes(sort) ? 1 : -1;
  const measure = (/** @type {Place} */ place) => up * (measureOf(known, place, sort) ?? 0);
  return all.filter((place) => place !== null).sort((a, b) => measure(a) - measure(b));
}

/**
 * @param {App} app
 * @param {number} width
 * @param {Site[]} sites
 */
function layOut(app, width, sites) {
  const columns = Math.max(...sites.map((site) => site.n_heads));
  const plain = app.store.state.sort === "layer";
  const left = plain && sites.length > 1 ? GUTTER : 0;
  const gap = columns > 8 ? 3 : 5;
  const room = width - left;
  const size = Math.max(8, Math.min(88, Math.floor((room + gap) / columns) - gap));
  return { columns, left, gap, size, under: plain ? 0 : 4, rows: sites.length };
}

/**
 * @param {App} app
 * @param {HTMLCanvasElement} canvas
 * @param {ReturnType<typeof layOut>} layout
 * @param {(Place | null)[]} places
 * @param {Known} known
 */
function paint(app, canvas, { columns, left, gap, size, under }, places, known) {
  const rows = Math.ceil(places.length / columns);
  const pen = sharpen(canvas, left + columns * (size + gap) - gap + 4, rows * (size + gap + under) - gap + 6);
  pen.imageSmoothingEnabled = false;
  pen.font = `10px ${getComputedStyle(canvas).fontFamily}`;
  pen.textBaseline = "middle";
  const { state } = app.store;
  const edited = editedHeads(app);
  places.forEach((place, n) => {
    if (!place) return;
    const [x, y] = [left + 1 + (n % columns) * (size + gap), 2 + Math.floor(n / columns) * (size + gap + under)];
    const { site, head } = place;
    const picture = known.pictures.get(site.path)?.[head];
    if (picture) pen.drawImage(stamp(picture), x, y, size, size);
    pen.strokeStyle = colour("hairline");
    pen.lineWidth = 1;
    pen.strokeRect(x - 0.5, y - 0.5, size + 1, size + 1);
    if (under) underline(app, known, pen, place, [x, y + size + 2, size]);
    if (left && n % columns === 0) {
      pen.fillStyle = colour("muted");
      pen.fillText(String(site.layer ?? ""), 0, y + size / 2);
    }
    if (edited.has(`${site.path}:${head}`) || edited.has(`${site.path}:*`)) frame(pen, x, y, size, "edit", [3, 2]);
    if (site.path === state.site && head === state.head) frame(pen, x, y, size, "ink", []);
  });
}

/**
 * The heads that the reader has changed; "*" where it is all heads of a site.
 * @param {App} app
 */
function editedHeads({ store }) {
  return new Set(store.state.edits.map((edit) => ("site" in edit ? `${edit.site}:${"head" in edit ? edit.head : "*"}` : "")));
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {number} size
 * @param {string} role
 * @param {number[]} dash
 */
function frame(pen, x, y, size, role, dash) {
  pen.strokeStyle = colour(role);
  pen.lineWidth = 2;
  pen.setLineDash(dash);
  pen.strokeRect(x - 1, y - 1, size + 2, size + 2);
  pen.setLineDash([]);
}

/**
 * The measure that heads are sorted by, as a line of that share of the width.
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
  pen.fillStyle = colour("muted");
  pen.fillRect(x, y, Math.max(1, (size * measure) / (Math.max(...all) || 1)), 2);
}

/** @type {WeakMap<Matrix, { canvas: HTMLCanvasElement, theme: string }>} */
const STAMPS = new WeakMap();

/**
 * A table as a picture of one pixel a cell; light tones spread a little, so that weak heads show too.
 * @param {Matrix} table
 */
function stamp(table) {
  const theme = colour("ground");
  const known = STAMPS.get(table);
  if (known?.theme === theme) return known.canvas;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [table.columns, table.rows];
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = pen.createImageData(table.columns, table.rows);
  const tones = ramp("weight");
  table.data.forEach((x, i) => {
    const from = 4 * Math.min(255, Math.round(255 * Math.max(0, x) ** 0.7));
    image.data.set(tones.subarray(from, from + 4), 4 * i);
  });
  pen.putImageData(image, 0, 0);
  STAMPS.set(table, { canvas, theme });
  return canvas;
}

/**
 * Get the pictures site by site, so that the first ones show at once, then what can be measured.
 * @param {App} app
 * @param {Known} known
 * @param {() => void} repaint
 * @param {() => void} build
 */
async function load(app, known, repaint, build) {
  const { source } = app;
  known.measures.clear();
  const each = async (/** @type {(site: Site) => Promise<void>} */ get) => {
    for (const site of app.sites) {
      await get(site);
      if (source !== app.source) throw new Error("another trace is shown by now");
      await new Promise((done) => setTimeout(done));
    }
  };
  try {
    await each(async (site) => {
      known.pictures.set(site.path, await (app.about.image ? onImage(app, site) : source.thumbnails(site.path, 32)));
      repaint();
    });
    app.root.dataset.pictures = "1";
    await each(async (site) => void known.measures.set(site.path, await source.measures(site.path)));
    if (app.store.state.sort !== "layer") build();
    repaint();
    app.root.dataset.measured = "1";
  } catch {
    // another trace, or the server has gone: what is there stays
  }
}

/**
 * For images: what the first token looks at, laid out as the patches are.
 * @param {App} app
 * @param {Site} site
 */
async function onImage({ source, about }, site) {
  const image = /** @type {import("../source.js").Picture} */ (about.image);
  const made = [];
  for (let head = 0; head < site.n_heads; head++) {
    const span = { start: image.first, stop: site.n_key, bins: site.n_key };
    const line = await source.tile(site.path, head, "weights", { start: 0, stop: 1, bins: 1 }, span);
    const even = 1 / line.data.length; // ten times as much as equal shares is as dark as can be
    made.push(matrix(image.n_rows, image.n_columns, line.data.map((x) => Math.min(1, x / (10 * even)))));
  }
  return made;
}

/**
 * @param {App} app
 * @param {Known} known
 * @param {HTMLElement} note
 * @param {Place | null} place
 */
function tell(app, known, note, place) {
  const { site, head } = place ?? { site: app.open.site, head: app.open.head };
  const measures = known.measures.get(site.path)?.[head];
  const name = site.layer === null ? app.say("headName", { head }) : app.say("layerHead", { layer: site.layer, head });
  const rest = measures && app.say("measures", { entropy: short(measures.entropy, 2), distance: short(measures.distance, 2), diagonal: short(measures.diagonal, 2) });
  fill(note, el("b", {}, name), el("br"), rest ?? "…");
}

/**
 * @param {App} app
 * @param {Known} known
 */
function tableOf({ sites }, known) {
  const names = SORTS.filter((one) => one !== "layer");
  const head = ["site", "head", ...names];
  const rows = sites.flatMap((site) =>
    Array.from({ length: site.n_heads }, (_, head) => [site.path, head, ...names.map((name) => plainNumber(measureOf(known, { site, head }, name) ?? NaN))]),
  );
  return [head, ...rows].map((line) => line.join("\t")).join("\n");
}
