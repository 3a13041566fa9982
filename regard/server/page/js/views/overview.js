// The overview: a thumbnail of every head, by layer or sorted by a measure.

import { prefetchHead } from "../controller.js";
import { el, fill, isTouch, pointIn } from "../dom.js";
import { plainNumber, short } from "../format.js";
import { matrix } from "../matrix.js";
import { SORTS } from "../state.js";
import { paneHead } from "./pane.js";
import { sweepPanel } from "./sweep.js";
import { editedHeads, layOut, marks, measureOf, pictures } from "./thumbnails.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Site} Site
 * @typedef {import("./thumbnails.js").Known} Known
 * @typedef {import("./thumbnails.js").Place} Place
 */

/** Measures that are sorted in ascending order. */
const ASCENDING = ["entropy", "distance"];
/** The time on a head, in milliseconds, after which it is prefetched. */
const PREFETCH_DELAY = 40;

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function overview(app) {
  const body = el("div.groups");
  const note = el("p.note");
  const sort = el("select", { onchange: () => app.store.set({ sort: sort.value }) }, SORTS.map((one) => el("option", { value: one }, app.t(`sort_${one}`))));
  const tools = el("label.quiet", { title: app.t("sortHelp") }, app.t("sort"), " ", sort);
  const sweep = sweepPanel(app, (group) => groupTitle(app, group), () => {
    build();
    repaint();
  });
  const element = el("section.pane.overview", { "aria-label": app.t("overview") },
    paneHead(app, "overview", tools, () => tableOf(app, known)), sweep.element, body, note);
  /** @type {Known} */
  const known = { pictures: new Map(), measures: new Map() };
  const state = () => app.store.state;
  let marked = "";
  let groups = /** @type {ReturnType<typeof group>[]} */ ([]);
  const build = () => {
    groups = groupsOf(app).map(([name, sites]) => group(app, name, sites, known, (place) => describeHead(app, known, note, place)));
    fill(body, groups.map((one) => one.element));
    describeHead(app, known, note, null);
  };
  const repaint = () => {
    groups.forEach((one) => one.paint());
    describeHead(app, known, note, null);
  };
  return {
    element,
    update: (changed) => {
      sweep.update(changed);
      if (changed.has("all")) {
        build();
        load(app, known, repaint, build); // the old thumbnails stay until then
      }
      if (["sort", "pane", "theme", "size"].some((one) => changed.has(one))) build();
      const now = `${state().site} ${state().head} ${[...editedHeads(app)]}`;
      sort.value = state().sort;
      if (["all", "sort", "pane", "theme", "size"].some((one) => changed.has(one))) repaint();
      else if (now !== marked) {
        groups.forEach((one) => one.mark());
        describeHead(app, known, note, null);
      }
      marked = now;
    },
  };
}

/**
 * Group sites by kind, in the order of computation.
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
  if (app.about.image && group === "encoder.layers.*.self") return app.t("kindImage");
  if (group === "encoder.layers.*.self") return app.t("kindEncoder");
  if (group === "decoder.layers.*.self") return app.t("kindDecoder");
  if (group === "decoder.layers.*.cross") return app.t("kindCross");
  return group === "decoder.cross" ? app.t("kindAlignment") : group;
}

/**
 * A canvas with the thumbnails of one kind of attention.
 * @param {App} app
 * @param {string} name
 * @param {Site[]} sites
 * @param {Known} known
 * @param {(place: Place | null) => void} onpoint
 */
function group(app, name, sites, known, onpoint) {
  const canvas = /** @type {any} */ (el("canvas", { tabindex: 0, role: "application" }));
  const title = groupTitle(app, name);
  canvas.setAttribute("aria-label", app.t(isTouch() ? "overviewLabelTouch" : "overviewLabel", { kind: title, layers: sites.length, heads: sites[0].n_heads }));
  const element = el("div.group", {}, el("h3", {}, title), canvas);
  let wide = 0; // measured once: a change of size rebuilds the group
  const layout = () => layOut(app, (wide ||= element.clientWidth) || 260, sites);
  const places = sorted(app, sites, known);
  const at = (/** @type {MouseEvent} */ event) => {
    const { size, left, columns, gap, under } = layout();
    const { x, y } = pointIn(canvas, event);
    const j = Math.floor((x - left) / (size + gap));
    const i = Math.floor(y / (size + gap + under));
    return j >= 0 && j < columns ? (places[i * columns + j] ?? null) : null;
  };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let waiting;
  const point = (/** @type {Place | null} */ place) => {
    clearTimeout(waiting);
    if (place) waiting = setTimeout(() => prefetchHead(app, place.site.path, place.head), PREFETCH_DELAY);
    onpoint(place);
  };
  canvas.addEventListener("pointermove", (/** @type {MouseEvent} */ event) => point(at(event)));
  canvas.addEventListener("pointerleave", () => point(null));
  const open = (/** @type {Place | null | undefined} */ place, /** @type {object} */ more = {}) =>
    place && app.store.set({ site: place.site.path, head: place.head, ...more });
  const closeOverview = () => (app.store.state.pane === "overview" ? { pane: "pattern" } : {});
  canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => open(at(event), closeOverview()));
  canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const { columns } = layout();
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Enter: 0 }[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const { site, head } = app.store.state;
    const here = places.findIndex((one) => one?.site.path === site && one.head === head);
    event.preventDefault();
    event.stopPropagation(); // outside the overview, arrows move query and key
    open(here < 0 ? places[0] : places[here + by], by ? {} : closeOverview());
  });
  const still = document.createElement("canvas"); // everything except the marks, which change more often
  const mark = () => marks(app, canvas, still, layout(), places);
  const paint = () => {
    pictures(app, still, layout(), places, known);
    mark();
  };
  return { element, paint, mark };
}

/**
 * @param {App} app
 * @param {Site[]} sites
 * @param {Known} known
 * @returns {(Place | null)[]} row by row; null if a layer has fewer heads than others
 */
function sorted(app, sites, known) {
  const { sort } = app.store.state;
  const columns = Math.max(...sites.map((site) => site.n_heads));
  const all = sites.flatMap((site) => Array.from({ length: columns }, (_, head) => (head < site.n_heads ? { site, head } : null)));
  if (sort === "layer" || sites.some((site) => !known.measures.has(site.path))) return all;
  const up = ASCENDING.includes(sort) ? 1 : -1;
  const measure = (/** @type {Place} */ place) => up * (measureOf(known, place, sort) ?? 0);
  return all.filter((place) => place !== null).sort((a, b) => measure(a) - measure(b));
}

/**
 * Load thumbnails site by site, so that the first ones appear early, then the measures.
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
      await new Promise((done) => setTimeout(done));
      if (source !== app.source) throw new Error("another trace is shown by now");
    }
  };
  try {
    await each(async (site) => {
      known.pictures.set(site.path, await (app.about.image ? imageThumbnails(app, site) : source.thumbnails(site.path, 32)));
      repaint();
    });
    app.root.dataset.pictures = "1";
    await each(async (site) => void known.measures.set(site.path, await source.measures(site.path)));
    if (app.store.state.sort !== "layer") build();
    repaint();
    app.root.dataset.measured = "1";
  } catch {
    // another trace, or no server: keep what is shown
  }
}

/**
 * Thumbnails of images: the weights of the first token, laid out like the patches.
 * @param {App} app
 * @param {Site} site
 */
async function imageThumbnails({ source, about }, site) {
  const image = /** @type {import("../source.js").Picture} */ (about.image);
  const made = [];
  for (let head = 0; head < site.n_heads; head++) {
    const span = { start: image.first, stop: site.n_key, bins: site.n_key };
    const line = await source.tile(site.path, head, "weights", { start: 0, stop: 1, bins: 1 }, span);
    const even = 1 / line.data.length; // ten equal shares are the darkest color
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
function describeHead(app, known, note, place) {
  const { site, head } = place ?? { site: app.open.site, head: app.open.head };
  const measures = known.measures.get(site.path)?.[head];
  const name = site.layer === null ? app.t("headName", { head }) : app.t("layerHead", { layer: site.layer, head });
  const rest = measures && app.t("measures", { entropy: short(measures.entropy, 2), distance: short(measures.distance, 2), diagonal: short(measures.diagonal, 2) });
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
