// Selection: which site, head, query, key and view can be selected.

import { computeRow, EFFICIENT_FORMS, rowOf, MAX_CELLS } from "./head.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./state.js").State} State
 * @typedef {import("./source.js").Site} Site
 * @typedef {import("./head.js").Tables} Tables
 */

/**
 * Return the state limited to what exists; an address may come from another trace.
 * @param {App} app
 * @param {State} state
 * @returns {State}
 */
export function withinBounds(app, state) {
  const site = app.sites.find((one) => one.path === state.site) ?? findSite(app, app.about.start.site);
  const least = (/** @type {number} */ x, /** @type {number} */ n) => Math.min(Math.max(0, x), n - 1);
  return {
    ...state,
    site: site.path,
    head: least(state.head, site.n_heads),
    query: least(state.query, site.n_query),
    key: least(state.key, site.n_key),
    view: viewsOf(app, site).includes(state.view) ? state.view : app.about.image ? "image" : "grid",
  };
}

/**
 * Return the side whose residual stream leads to the answer, if a server or the file can read words from it.
 * @param {App["about"]} about
 */
export function readableSide(about) {
  if (!about.live && !about.readout) return null;
  return { transformer: "decoder.", decoder: "decoder.", encoder: "encoder.", vision: "encoder." }[about.family] ?? null;
}

/**
 * Return whether the model predicts words at the queries of a site, and a server or the file can say why.
 * @param {App["about"]} about
 * @param {Site} site
 */
export function leadsToWords(about, site) {
  const side = readableSide(about);
  return side !== null && site.path.startsWith(side);
}

/** The largest number of points that can be distinguished. */
const MAX_POINTS = 1024;

/**
 * Return the views that a site has.
 * @param {{ about: App["about"] }} app
 * @param {Site} site
 * @returns {State["view"][]}
 */
export function viewsOf({ about }, site) {
  const stacked = site.group.endsWith(".layers.*.self") && site.n_query === site.n_key && !isLarge(site);
  const own = /** @type {const} */ ([
    ["image", about.image],
    ["space", site.space && site.n_query <= MAX_POINTS],
    ["rollout", stacked],
    ["exact", EFFICIENT_FORMS.has(site.similarity) && !isLarge(site)],
    ["lens", leadsToWords(about, site)],
    ["attribution", leadsToWords(about, site)],
  ]);
  return ["grid", "lines", "bars", "graph", ...own.filter(([, known]) => known).map(([view]) => view)];
}

/** Views of words, which are read from the side that leads to the answer. */
const WORDS = /** @type {State["view"][]} */ (["lens", "attribution"]);

/**
 * Return the views that can be opened from a site: its own, and those of words, which may move to another site.
 * @param {{ about: App["about"], sites: Site[] }} app
 * @param {Site} site
 */
export function viewsFrom({ about, sites }, site) {
  const words = sites.some((one) => leadsToWords(about, one)) ? WORDS : [];
  return [...new Set([...viewsOf({ about }, site), ...words])];
}

/**
 * @param {{ sites: Site[] }} app
 * @param {string} path
 * @returns {Site}
 */
export function findSite(app, path) {
  return app.sites.find((site) => site.path === path) ?? app.sites[0];
}

/**
 * Return the next head, continuing in the next layer of the same group.
 * @param {App} app
 * @param {number} by
 * @param {{ site: string, head: number }} [from]
 * @returns {{ site?: string, head: number } | null}
 */
export function otherHead(app, by, from = app.store.state) {
  const here = findSite(app, from.site);
  const head = from.head + by;
  if (head >= 0 && head < here.n_heads) return { head };
  const group = app.sites.filter((site) => site.group === here.group);
  const next = group[group.indexOf(here) + by];
  if (!next) return null;
  return { site: next.path, head: by > 0 ? 0 : next.n_heads - 1 };
}

/**
 * @param {App} app
 * @param {number} by
 * @param {{ site: string, head: number }} [from]
 * @returns {{ site: string, head?: number } | null}
 */
export function otherLayer(app, by, from = app.store.state) {
  const here = findSite(app, from.site);
  const group = app.sites.filter((site) => site.group === here.group);
  const next = group[group.indexOf(here) + by];
  return next ? { site: next.path } : null;
}

/** Where a reader was before a view moved to another site. */
/** @type {WeakMap<App, { from: string, to: string, query: number, key: number }>} */
const BEFORE = new WeakMap();

/**
 * Return the change of state that opens a view. A rollout starts with all layers, and words are read
 * where they are predicted; the other views go back to the site before that.
 * @param {App} app
 * @param {State["view"]} view
 * @returns {Partial<State>}
 */
export function openView(app, view) {
  const { site, head, query, key, kept, pinned, view: shown } = app.store.state;
  const [gap] = app.about.output?.filled ?? []; // the answer of a model that fills gaps
  if (gap && !pinned && WORDS.includes(view) && shown !== "rollout") return { view, query: gap.position };
  const goTo = (/** @type {string} */ to) => ({ view, site: to, kept: kept && `${to}@${head}` });
  const to = view === shown ? site : placeOf(app, view, site);
  const before = BEFORE.get(app);
  if (to !== site) {
    BEFORE.set(app, { ...(before?.to === site ? before : { from: site, query, key }), to });
    return view === "rollout" ? goTo(to) : { ...goTo(to), query: 0, key: 0 }; // of another text
  }
  if (WORDS.includes(view) && WORDS.includes(shown)) return { view };
  BEFORE.delete(app);
  const back = before?.to === site && app.sites.find((one) => one.path === before.from);
  if (!back || !viewsOf(app, back).includes(view)) return { view };
  return WORDS.includes(shown) && before ? { ...goTo(back.path), query: before.query, key: before.key } : goTo(back.path);
}

/**
 * Return the site at which a view is opened from another one.
 * @param {App} app
 * @param {State["view"]} view
 * @param {string} from
 */
function placeOf(app, view, from) {
  const here = findSite(app, from);
  const fitting = app.sites.filter((one) => (view === "rollout" ? one.group === here.group : WORDS.includes(view) && leadsToWords(app.about, one)));
  const stays = !fitting.length || (view !== "rollout" && fitting.includes(here));
  return stays ? from : /** @type {Site} */ (fitting.at(-1)).path;
}

/**
 * Return the head that looks most clearly at one other key for each query: of the layers that read the
 * other text, if there are any.
 * @param {import("./source.js").Source} source
 * @param {Site[]} sites
 */
export async function mostAligned(source, sites) {
  const crossing = sites.filter((one) => one.answers !== one.asks);
  const measured = await Promise.all((crossing.length ? crossing : sites).map(async ({ path }) => (await source.measures(path)).map(({ peak, variety }, head) => ({ site: path, head, alignment: peak * variety }))));
  return measured.flat().reduce((best, one) => (one.alignment > best.alignment ? one : best), { site: "", head: 0, alignment: -1 });
}

/**
 * Return whether a head has too many cells to keep in memory.
 * @param {Site} site
 */
export function isLarge(site) {
  return site.n_query * site.n_key > MAX_CELLS;
}

/**
 * Return the tables of one query of the open head.
 * @param {App} app
 * @param {number} query
 * @param {"before" | "after"} [version]
 * @returns {Tables}
 */
export function rowAt(app, query, version = "after") {
  const { open } = app;
  return open.large ? computeRow(open.site, open.head, open.vectors, query) : rowOf(open[version], query);
}
