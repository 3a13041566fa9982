// The explorer: one source, one selection, several panes that show it.

import { changesOf } from "./edits.js";
import { showDigits } from "./format.js";
import { computeRow, computeTables } from "./head.js";
import { listenToKeys } from "./keys.js";
import { isLarge, siteNamed, withinBounds } from "./select.js";
import { Store } from "./state.js";
import { askingSide, ticksOf, withTokens } from "./tokens.js";
import { frame } from "./views/frame.js";
import { speaker } from "./words.js";

/**
 * @typedef {import("./source.js").Source} Source
 * @typedef {import("./source.js").About} About
 * @typedef {import("./source.js").Site} Site
 * @typedef {import("./source.js").Vectors} Vectors
 * @typedef {import("./head.js").Tables} Tables
 * @typedef {import("./tokens.js").Tick} Tick
 * @typedef {import("./state.js").State} State
 */

/**
 * The head that is open.
 * @typedef {object} Open
 * @property {Site} site
 * @property {number} head
 * @property {Vectors} vectors
 * @property {Tables} before as the model computed it
 * @property {Tables} after with the reader's edits; the same object where there are none
 * @property {import("./edits.js").Changes | null} changes
 * @property {Tick[]} rows queries
 * @property {Tick[]} columns keys
 * @property {string | null} asking the side whose labels the queries have
 * @property {boolean} large whether it has too many cells to be held: `before` has no rows then
 */

/**
 * @typedef {object} App
 * @property {HTMLElement} root
 * @property {Source} source
 * @property {About} about
 * @property {Site[]} sites
 * @property {Store} store
 * @property {Open} open
 * @property {import("./words.js").Say} say
 * @property {{ query: number, key: number } | null} peek where the mouse is
 * @property {(peek: App["peek"]) => void} look
 * @property {((app: App) => Pane)[]} extras panes of a host: above the others, and below them
 * @property {(source: Source, stays?: boolean) => Promise<void>} show another trace in the place of
 *   this one; `stays` where it has the same sites, and the reader goes on looking at the same head
 */

/** A pane: something that is drawn once and follows the selection. */
/** @typedef {{ element: HTMLElement, update: (changed: Set<string>) => void }} Pane */

/**
 * Show a source in an element.
 * @param {HTMLElement} root
 * @param {Source} source
 * @param {import("./state.js").Address} address
 * @param {App["extras"]} [extras]
 * @returns {Promise<App>}
 */
export async function start(root, source, address, extras = []) {
  const [about, sites] = await Promise.all([source.about(), source.sites()]);
  showDigits(about.digits ?? 3);
  const store = new Store(firstState(about), address);
  const app = /** @type {App} */ ({ root, source, about, sites, store, extras, peek: null });
  app.store.state = withinBounds(app, store.state);
  app.say = speaker(store.state.language);
  app.open = await opened(app);
  const panes = frame(app);
  const soon = gathering((changed) => follow(app, panes, changed));
  app.look = (peek) => {
    app.peek = peek;
    soon(["peek"]);
  };
  app.show = (other, stays) => exchange(app, other, panes, stays);
  store.subscribe((_, changed) => soon(changed));
  listenToKeys(app);
  panes.update(new Set(["all"]));
  root.dataset.ready = "1";
  refine(app, panes);
  return app;
}

/**
 * @param {About} about
 * @returns {State}
 */
function firstState(about) {
  return {
    ...about.start,
    page: "explore",
    pinned: false,
    view: about.image ? "image" : "grid",
    stage: "weights",
    turned: false,
    words: false,
    mass: 1,
    sort: "layer",
    pane: "",
    heads: "",
    spin: 0,
    language: navigator.language.startsWith("ko") ? "ko" : "en",
    edits: [],
    name: "",
    sampling: 1,
    work: "",
    drawing: false,
    lesson: 0,
    learned: [],
  };
}

/**
 * A function that may be called often and acts once for each picture on the screen.
 * @param {(changed: Set<string>) => void} act
 * @returns {(changed: Iterable<string>) => void}
 */
function gathering(act) {
  /** @type {Set<string> | null} */
  let waiting = null;
  return (changed) => {
    if (!waiting) {
      requestAnimationFrame(() => {
        const all = /** @type {Set<string>} */ (waiting);
        waiting = null;
        act(all);
      });
    }
    waiting = new Set([...(waiting ?? []), ...changed]);
  };
}

/** @type {number} */
let LATEST = 0;

/**
 * Show another trace: the selection begins anew, the way of looking stays.
 * @param {App} app
 * @param {Source} source
 * @param {{ update: (changed: Set<string>) => void }} panes
 * @param {boolean} [stays]
 */
async function exchange(app, source, panes, stays = false) {
  const [about, sites] = await Promise.all([source.about(), source.sites()]);
  const first = firstState(about);
  const fresh = stays ? {} : { ...about.start, edits: [], pinned: false, view: about.image ? first.view : app.store.state.view };
  const next = { ...app, source, about, sites, peek: null };
  const state = withinBounds(next, { ...app.store.state, ...fresh });
  const open = await opened(/** @type {App} */ ({ ...next, store: { state } }));
  LATEST++;
  Object.assign(app, { source, about, sites, open, peek: null });
  app.store.begin(first, state);
  panes.update(new Set([stays ? "trace" : "all"]));
}

/**
 * @param {App} app
 * @param {{ update: (changed: Set<string>) => void }} panes
 * @param {Set<string>} changed
 */
async function follow(app, panes, changed) {
  const bounded = withinBounds(app, app.store.state);
  app.store.state = bounded;
  if (changed.has("language")) app.say = speaker(bounded.language);
  if (changed.has("site") || changed.has("head")) {
    const mine = ++LATEST;
    const open = await opened(app);
    if (mine !== LATEST) return; // the reader has moved on
    app.open = open;
    app.peek = null;
  } else if (changed.has("edits")) app.open = edited(app, app.open);
  panes.update(changed);
  if (["edits", "site", "head"].some((one) => changed.has(one))) await refine(app, panes);
}

/** @type {number} */
let REFINED = 0;

/**
 * Where a model can be asked: the open head after edits elsewhere, too, which change what it reads.
 * @param {App} app
 * @param {{ update: (changed: Set<string>) => void }} panes
 */
async function refine(app, panes) {
  const mine = ++REFINED;
  const { site, head, large } = app.open;
  const { edits } = app.store.state;
  if (!edits.length || !app.source.after || large) return;
  const after = await app.source.after(edits, site.path, head).catch(() => null);
  if (mine !== REFINED || !after) return; // the reader has moved on, or the edits make no sense
  const here = app.open.after;
  if (after.off === here.off && areClose(after.weights, here.weights) && areClose(after.scores, here.scores)) return; // known already
  app.open = { ...app.open, after };
  panes.update(new Set(["edits"]));
}

/**
 * @param {import("./attention.js").Matrix | null} a
 * @param {import("./attention.js").Matrix | null} b
 */
function areClose(a, b) {
  if (!a || !b) return a === b;
  return a.data.every((x, i) => x === b.data[i] || Math.abs(x - b.data[i]) < 1e-5 * Math.max(1, Math.abs(x)));
}

/**
 * The head that the selection names.
 * @param {App} app
 * @returns {Promise<Open>}
 */
async function opened(app) {
  const { site: path, head } = app.store.state;
  const site = siteNamed(app, path);
  const vectors = await app.source.vectors(path, head);
  const large = isLarge(site);
  const before = large ? { ...computeRow(site, head, vectors, 0) } : computeTables(site, head, vectors);
  const asking = askingSide(site);
  return edited(app, { ...{ site, head, vectors, before, after: before, changes: null, asking, large }, rows: [], columns: [] });
}

/**
 * @param {App} app
 * @param {Open} open
 * @returns {Open}
 */
function edited(app, open) {
  const { edits } = app.store.state;
  const changes = open.large ? null : changesOf(edits, open.site.path, open.head);
  const after = changes ? computeTables(open.site, open.head, open.vectors, changes, open.before) : open.before;
  const about = withTokens(app.about, edits);
  const rows = ticksOf(about, open.asking, open.site.n_query);
  return { ...open, changes, after, rows, columns: ticksOf(about, open.site.answers, open.site.n_key) };
}
