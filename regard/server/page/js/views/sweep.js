// A sweep: every head switched off in turn, as a heat map of the change in the answer's log-probability.

import { el, fill, rememberFocus } from "../dom.js";
import { withEdit, withoutEdit } from "../edits.js";
import { full, short } from "../format.js";
import { labelOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Site} Site
 * @typedef {import("../source.js").Sweep} Sweep
 * @typedef {{ site: Site, head: number }} Place
 */

/**
 * The sweep of a run; it stays until the text changes.
 * @typedef {object} Known
 * @property {Sweep | null} result
 * @property {{ done: number, of: number | null } | null} progress
 * @property {unknown} error
 * @property {boolean} shown whether the heat map takes the place of the thumbnails
 * @property {number | null} token of the answer; null for the whole answer
 * @property {AbortController | null} running
 * @property {() => void} refresh draws the panel that shows it; a change of language makes another one
 */

/** @type {WeakMap<App["source"], Known>} */
const KNOWN = new WeakMap();
/** From this share on, a cell is dark enough for light text. */
const DARK = 0.6;
const KEYS = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] });

/** @param {App} app */
function knownOf({ source }) {
  let known = KNOWN.get(source);
  if (!known) KNOWN.set(source, (known = { result: null, progress: null, error: null, shown: false, token: null, running: null, refresh: () => undefined }));
  return known;
}

/**
 * The button of the sweep, its progress and its heat map.
 * @param {App} app
 * @param {(group: string) => string} titleOf name of a kind of attention
 * @param {() => void} restore draws the thumbnails again after they were hidden
 */
export function sweepPanel(app, titleOf, restore) {
  const element = el("div.sweep");
  let drawn = /** @type {any} */ (null);
  const refresh = () => {
    const known = knownOf(app);
    const possible = Boolean(app.source.model && app.source.sweep);
    known.refresh = refresh;
    element.hidden = !possible;
    const pane = element.parentElement;
    const was = pane?.classList.contains("swept");
    pane?.classList.toggle("swept", possible && known.shown && known.result !== null);
    const refocus = rememberFocus(element);
    fill(element, possible ? render(app, known, titleOf) : "");
    refocus();
    if (was && !pane?.classList.contains("swept")) restore();
    drawn = contents(known, app);
  };
  return {
    element,
    update: (/** @type {Set<string>} */ changed) => {
      const known = knownOf(app);
      if (changed.has("query")) followQuery(app, known);
      const now = contents(known, app);
      if (!drawn || ["all", "edits"].some((one) => changed.has(one)) || now.some((one, i) => one !== drawn[i])) refresh();
    },
  };
}

/**
 * @param {Known} known
 * @param {App} app
 */
function contents({ result, progress, error, shown, token }, { source, store }) {
  return [source, result, progress, error, shown, token, store.state.site, store.state.head];
}

/**
 * If one token is measured, measure the one that the selected query writes.
 * @param {App} app
 * @param {Known} known
 */
function followQuery({ open, store }, known) {
  const at = known.result?.positions.indexOf(store.state.query) ?? -1;
  if (known.token !== null && at >= 0 && open.site.path.startsWith("decoder.")) known.token = at;
}

/**
 * @param {App} app
 * @param {Known} known
 * @param {(group: string) => string} titleOf
 */
function render(app, known, titleOf) {
  const { t } = app;
  if (known.progress) return progressOf(app, known);
  const show = (/** @type {boolean} */ shown) => {
    known.shown = shown;
    known.refresh();
  };
  if (!known.result) {
    return [
      el("button.sweep-start", { title: t("sweepHelp"), onclick: () => start(app, known) }, t("sweep")),
      known.error ? el("p.error", { "data-says": "" }, t.error(known.error)) : "",
    ];
  }
  if (!known.shown) return [el("button.sweep-start", { onclick: () => show(true) }, t("sweepShow"))];
  return [el("button.sweep-start", { onclick: () => show(false) }, t("sweepHide")), ...heatMap(app, known, known.result, titleOf)];
}

/**
 * @param {App} app
 * @param {Known} known
 */
function progressOf({ t }, { progress, running }) {
  const { done, of } = progress ?? { done: 0, of: null };
  return [
    el("progress", { "aria-label": t("sweep"), ...(of ? { max: of, value: done } : {}) }),
    el("p.note", { "data-says": "" }, of ? t("sweepProgress", { done, of }) : t("progress_sweeping"), " ", el("button.quiet.sweep-stop", { onclick: () => running?.abort() }, t("sweepStop"))),
  ];
}

/**
 * @param {App} app
 * @param {Known} known
 */
async function start(app, known) {
  const { source } = app;
  const mine = (known.running = new AbortController());
  const tell = () => app.source === source && known.refresh(); // else another text is shown by now
  known.error = null;
  known.progress = { done: 0, of: null };
  tell();
  try {
    const onProgress = (/** @type {import("../http.js").Progress} */ { doing, done, of }) => {
      known.progress = doing === "sweeping" ? { done, of } : { done: 0, of: null };
      tell();
    };
    known.result = await /** @type {NonNullable<typeof source.sweep>} */ (source.sweep?.bind(source))({ signal: mine.signal, onProgress });
    known.shown = true;
  } catch (error) {
    known.error = mine.signal.aborted ? null : error;
  }
  known.progress = null;
  tell();
}

/**
 * Return the change of a head: of the whole answer, or of one token.
 * @param {Known} known
 * @param {Sweep} result
 * @param {Place} place
 */
function changeOf({ token }, { changes }, { site, head }) {
  const line = changes[site.path]?.[head] ?? [];
  return token === null ? line.reduce((sum, x) => sum + x, 0) : (line[token] ?? NaN);
}

/**
 * @param {App} app
 * @param {Known} known
 * @param {Sweep} result
 * @param {(group: string) => string} titleOf
 */
function heatMap(app, known, result, titleOf) {
  const { t, sites, store } = app;
  const places = sites.flatMap((site) => Array.from({ length: site.n_heads }, (_, head) => ({ site, head })));
  const most = Math.max(1e-12, ...places.map((place) => Math.abs(changeOf(known, result, place))));
  const note = el("div.sweep-note", { "data-says": "" });
  const describe = (/** @type {Place | null} */ place) => fill(note, describeChange(app, known, result, place ?? { site: app.open.site, head: app.open.head }));
  /** @type {Map<string, Site[]>} */
  const groups = new Map();
  for (const site of sites) groups.set(site.group, [...(groups.get(site.group) ?? []), site]);
  const tables = [...groups].map(([group, list]) => el("div.sweep-group", {}, el("h3", {}, titleOf(group)), tableOf(app, known, result, { list, most, name: titleOf(group), describe })));
  const holder = el("div.sweep-tables", { onpointerleave: () => describe(null), onkeydown: (/** @type {KeyboardEvent} */ event) => moveFocus(event, holder) }, tables);
  const tokens = result.tokens.map((token, i) => el("option", { value: i }, labelOf(token)));
  const what = el("select.sweep-token", { "aria-label": t("sweepTitle"), onchange: () => {
    known.token = what.value === "" ? null : Number(what.value);
    known.refresh();
  } }, el("option", { value: "" }, t("sweepWhole")), tokens);
  what.value = known.token === null ? "" : String(known.token);
  describe(null);
  const edited = store.state.edits.length ? el("p.note", {}, t("sweepNoEdits")) : "";
  return [el("p.sweep-title", {}, t("sweepTitle")), what, note, holder, legend(app, most), edited];
}

/**
 * @param {App} app
 * @param {Known} known
 * @param {Sweep} result
 * @param {{ list: Site[], most: number, name: string, describe: (place: Place | null) => void }} given
 */
function tableOf(app, known, result, { list, most, name, describe }) {
  const { t, store } = app;
  const columns = Math.max(...list.map((site) => site.n_heads));
  const heads = Array.from({ length: columns }, (_, head) => el("th", { scope: "col", "aria-label": t("headName", { head }) }, head));
  const rows = list.map((site) =>
    el("tr", {}, el("th", { scope: "row", "aria-label": site.layer === null ? name : t("layerName", { layer: site.layer }) }, site.layer ?? ""), Array.from({ length: site.n_heads }, (_, head) => {
      const x = changeOf(known, result, { site, head });
      const share = Math.abs(x) / most;
      const here = store.state.site === site.path && store.state.head === head;
      const label = `${placeName(t, { site, head })}: ${full(x)}`;
      const cell = el(`button.${x < 0 ? "negative" : "positive"}${share > DARK ? ".dark" : ""}`, {
        ...{ "data-site": site.path, "data-head": head, "aria-label": label, title: label, "aria-pressed": String(here), tabindex: here || (head === 0 && site === list[0] && !list.includes(app.open.site)) ? 0 : -1 },
        onclick: () => open(app, site, head),
        onpointerenter: () => describe({ site, head }),
        onfocus: () => describe({ site, head }),
      }, el("span.sign", { "aria-hidden": "true" }, signOf(x, share)), el("span.digits", { "aria-hidden": "true" }, short(x, 2)));
      cell.style.setProperty("--share", `${Math.round(100 * share)}%`);
      return el("td", {}, cell);
    })));
  return el("table.sweep-table", {}, el("caption.visually-hidden", {}, `${name}: ${t("sweepTitle")}`), el("thead", {}, el("tr", {}, el("td"), heads)), el("tbody", {}, rows));
}

/** The share of the largest change below which a cell has no sign. */
const MIN_SIGN = 0.01;

/**
 * @param {number} x
 * @param {number} share
 */
function signOf(x, share) {
  return share < MIN_SIGN ? "" : x < 0 ? "−" : "+";
}

/**
 * @param {App} app
 * @param {Site} site
 * @param {number} head
 */
function open({ store }, site, head) {
  store.set({ site: site.path, head, ...(store.state.pane === "overview" ? { pane: "pattern" } : {}) });
}

/**
 * @param {App["t"]} t
 * @param {Place} place
 */
function placeName(t, { site, head }) {
  return site.layer === null ? t("headName", { head }) : t("layerHead", { layer: site.layer, head });
}

/**
 * Describe a head's change; the open head can be switched off.
 * @param {App} app
 * @param {Known} known
 * @param {Sweep} result
 * @param {Place} place
 */
function describeChange(app, known, result, { site, head }) {
  const { t, store } = app;
  const x = changeOf(known, result, { site, head });
  const what = known.token === null ? t("sweepWhole") : labelOf(result.tokens[known.token]);
  const share = short(Math.exp(x), 2);
  const edit = /** @type {const} */ ({ kind: "ablate", site: app.open.site.path, head: app.open.head });
  const { edits } = store.state;
  const off = app.open.changes?.off ?? false;
  const openHead = app.open.site.path === site.path && app.open.head === head;
  return [
    el("p", {}, el("b", {}, placeName(t, { site, head })), " ", el("b.digits.sweep-exact", { title: full(x), "data-value": x }, short(x))),
    el("p", {}, t(x < 0 ? "sweepLess" : "sweepMore", { what, share })),
    el("button.quiet.sweep-off", { disabled: !openHead, "aria-pressed": String(off && openHead), onclick: () => store.set({ edits: off ? withoutEdit(edits, edit) : withEdit(edits, edit) }) }, t(off && openHead ? "sweepOn" : "sweepOff")),
  ];
}

/**
 * @param {App} app
 * @param {number} most
 */
function legend({ t }, most) {
  return el("div.sweep-legend", {}, el("span.digits", {}, short(-most, 2)), el("span.sweep-bar", { "aria-hidden": "true" }), el("span.digits", {}, `+${short(most, 2)}`), el("p.note", {}, t("sweepLegend")));
}

/**
 * Move the focus between heads; Enter opens one.
 * @param {KeyboardEvent} event
 * @param {HTMLElement} holder
 */
function moveFocus(event, holder) {
  const cell = /** @type {HTMLElement} */ (event.target).closest("td button");
  const [down, right] = KEYS[event.key] ?? [0, 0];
  if (!cell || (!down && !right) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation(); // arrow keys also move the query and the key
  const rows = [...holder.querySelectorAll("tbody tr")].map((row) => /** @type {HTMLElement[]} */ ([...row.querySelectorAll("button")]));
  const i = rows.findIndex((row) => row.includes(/** @type {HTMLElement} */ (cell)));
  const j = rows[i].indexOf(/** @type {HTMLElement} */ (cell));
  const line = rows[i + down];
  line?.[Math.min(j + right, line.length - 1)]?.focus();
}
