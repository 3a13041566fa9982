// The controller: when the state changes, open heads, apply edits and update panes, in this order.

import { changesOf } from "./edits.js";
import { prefetchFlow } from "./flow_rows.js";
import { computeRow, computeTables } from "./head.js";
import { carryOver, divideEdits, keyOrLargest } from "./kept_choices.js";
import { messagesFor } from "./messages.js";
import { isLarge, otherHead, otherLayer, findSite, withinBounds } from "./selection.js";
import { readFullState } from "./state.js";
import { querySide, ticksOf, withReplacedTokens } from "./tokens.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./app.js").Open} Open
 * @typedef {{ update: (changed: Set<string>) => Promise<void> }} Panes resolved when all of them have been updated
 * @typedef {{ site: string, head: number }} Place
 * @typedef {Pick<App, "source" | "about" | "sites"> & { store: { state: import("./state.js").State } }} HeadContext
 */

/** Updates the panes; a head is shown only after it is loaded. */
export class Controller {
  /**
   * @param {App} app
   * @param {Panes} panes
   */
  constructor(app, panes) {
    this.app = app;
    this.panes = panes;
    /** Names of the changed parts of the state that no pane has shown yet. */
    this.pendingChanges = /** @type {Set<string>} */ (new Set());
    this.scheduled = false;
    this.opening = 0;
    this.opened = 0;
    this.refined = 0;
    this.busy = 0;
    /** The view that the reader chose, and the one that is shown because the trace does not have it. */
    this.wished = { view: app.store.state.view, shown: app.store.state.view };
    /** @type {{ what: string, source: App["source"], open: Promise<Open> } | null} */
    this.prepared = null;
  }

  /**
   * Show changes in the next animation frame.
   * @param {Iterable<string>} changed
   */
  schedule(changed) {
    for (const one of changed) this.pendingChanges.add(one);
    if (this.pendingChanges.has("site") || this.pendingChanges.has("head")) this.prepare();
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.whileBusy(this.applyChanges());
    });
  }

  /**
   * Start loading the selected head before the next animation frame.
   * @returns {Promise<Open>}
   */
  prepare() {
    const { app } = this;
    const state = withinBounds(app, app.store.state);
    const what = JSON.stringify([state.site, state.head, state.edits]);
    if (this.prepared?.what === what && this.prepared.source === app.source) return this.prepared.open;
    const open = openHead({ ...app, store: { state } });
    open.catch(() => null); // reported when it is shown
    this.prepared = { what, source: app.source, open };
    return open;
  }

  async applyChanges() {
    const { app, pendingChanges } = this;
    app.store.state = withinBounds(app, app.store.state);
    if (pendingChanges.has("language")) app.t = messagesFor(app.store.state.language);
    if (pendingChanges.has("site") || pendingChanges.has("head")) {
      const mine = ++this.opening;
      const from = { site: app.open.site.path, head: app.open.head };
      const work = this.prepare();
      const open = await work.catch((error) => this.reportFailure(error));
      if (this.prepared?.open === work) this.prepared = null;
      if (mine !== this.opening) return; // the selection has changed: the last call shows everything
      if (open) app.open = open;
      app.peek = null;
      this.opened = mine;
      prefetchNext(app, from, { site: app.open.site.path, head: app.open.head });
    }
    if (this.opened !== this.opening) return; // shown together with the head that is loading
    if (pendingChanges.has("edits")) app.open = edited(app, app.open);
    const reopened = ["edits", "site", "head"].some((one) => pendingChanges.has(one));
    await Promise.all([this.show(), reopened && this.refine()]);
  }

  async show() {
    const changed = new Set(this.pendingChanges);
    this.pendingChanges.clear();
    if (changed.size) await this.panes.update(changed);
  }

  /**
   * Go back to the head that is open, and show the error.
   * @param {Error} error
   */
  reportFailure(error) {
    const { app } = this;
    app.store.set({ site: app.open.site.path, head: app.open.head, kept: app.store.state.kept });
    app.root.dispatchEvent(new CustomEvent("regard-error", { detail: error }));
    return null;
  }

  /** Ask the model for the open head after all edits: edits elsewhere change its input. */
  async refine() {
    const { app } = this;
    const mine = ++this.refined;
    const { site, head, large } = app.open;
    const { edits } = app.store.state;
    if (!edits.length || !app.source.model || large) return;
    const recomputed = await app.source.model.headAfter(edits, site.path, head).catch(() => null);
    if (mine !== this.refined || !recomputed) return; // the selection has changed, or the model refuses the edits
    const here = app.open.after;
    const { tables } = recomputed;
    const known = tables.off === here.off && areClose(tables.weights, here.weights) && areClose(tables.scores, here.scores);
    app.open = { ...app.open, recomputed, after: known ? here : tables };
    await this.panes.update(new Set(["edits"]));
  }

  /**
   * Show another trace; what the reader has chosen stays.
   * @param {import("./source.js").Source} source
   * @param {(about: import("./source.js").About) => import("./state.js").State} firstState
   * @param {import("./app.js").Keep} keep
   */
  async replaceTrace(source, firstState, keep) {
    const { app } = this;
    const [about, sites] = await Promise.all([source.about(), source.sites()]);
    const first = firstState(about);
    const next = { ...app, source, about, sites, peek: null, refused: new Map() };
    const wanted = divideEdits(next, this.stateOf(next, first, keep));
    const state = withinBounds(next, wanted);
    await prefetchFlow(source, about, state);
    const open = await openHead({ ...next, store: { state } });
    state.key = Math.max(0, keyOrLargest(open, wanted));
    this.opened = ++this.opening; // cancel heads of the old trace that are still loading
    this.refined++;
    Object.assign(app, { source, about, sites, open, peek: null, refused: next.refused });
    app.t = messagesFor(state.language);
    this.wished = { view: this.wishedView(), shown: state.view };
    app.store.begin(first, state);
    this.pendingChanges.add(keep.selection ? "trace" : "all");
    await this.show();
    this.whileBusy(this.refine());
  }

  /**
   * Return the state for another trace, before it is limited to what exists.
   * @param {Pick<App, "about" | "sites">} next
   * @param {import("./state.js").State} first
   * @param {import("./app.js").Keep} keep
   */
  stateOf(next, first, keep) {
    const { state } = this.app.store;
    if (keep.address !== undefined) return readFullState(first, keep.address);
    if (keep.selection) return state;
    if (state.lesson) return { ...state, ...next.about.start, edits: [], pinned: false, view: next.about.image ? first.view : state.view }; // the lesson chooses
    if (!keep.example) return carryOver(next, state, this.app.about, this.wishedView());
    return { ...carryOver(next, { ...state, kept: "", pinned: false }, this.app.about, this.wishedView()), pinned: true }; // opened for what it shows
  }

  wishedView() {
    const { view } = this.app.store.state;
    return view === this.wished.shown ? this.wished.view : view;
  }

  /**
   * Let an edit rest that the model refuses; the list says why.
   * @param {any} error
   * @param {import("./edits.js").Edit[]} edits that were requested
   */
  refuse(error, edits) {
    const { store, refused } = this.app;
    if (!error?.isServerError || error.status !== 422 || JSON.stringify(edits) !== JSON.stringify(store.state.edits)) return;
    const { position, side } = error.params;
    const named = edits.find((edit) => edit.kind === "token" && edit.position === position && edit.side === side);
    const edit = named ?? edits[edits.length - 1];
    if (!edit) return;
    refused.set(JSON.stringify(edit), error);
    store.change({ edits: [...edits] }, true);
  }

  /**
   * Mark the page as busy until the work is done.
   * @template T
   * @param {Promise<T>} work
   * @returns {Promise<T>}
   */
  async whileBusy(work) {
    const t = () => this.app.root.setAttribute("aria-busy", String(this.busy > 0));
    this.busy++;
    t();
    try {
      return await work;
    } finally {
      this.busy--;
      t();
    }
  }
}

/**
 * @param {import("./matrix.js").Matrix | null} a
 * @param {import("./matrix.js").Matrix | null} b
 */
function areClose(a, b) {
  if (!a || !b) return a === b;
  return a.data.every((x, i) => x === b.data[i] || Math.abs(x - b.data[i]) < 1e-5 * Math.max(1, Math.abs(x)));
}

/**
 * Fetch the vectors of a head before it is opened.
 * @param {Pick<App, "source" | "sites">} app
 * @param {string} path
 * @param {number} head
 */
export function prefetchHead({ source, sites }, path, head) {
  const site = sites.find((one) => one.path === path);
  if (site && head < site.n_heads && !isLarge(site)) source.vectors(path, head).catch(() => null);
}

/**
 * Prefetch the next head in the direction in which the reader moves.
 * @param {App} app
 * @param {Place} from
 * @param {Place} to
 */
function prefetchNext(app, from, to) {
  for (const next of [otherHead, otherLayer]) {
    for (const by of [1, -1]) {
      const would = { ...from, ...next(app, by, from) };
      const then = next(app, by, to);
      if (would.site === to.site && would.head === to.head && then) prefetchHead(app, then.site ?? to.site, then.head ?? to.head);
    }
  }
}

/**
 * Open the selected head.
 * @param {HeadContext} app
 * @returns {Promise<Open>}
 */
export async function openHead(app) {
  const { site: path, head } = app.store.state;
  const site = findSite(app, path);
  const vectors = await app.source.vectors(path, head);
  const large = isLarge(site);
  const before = large ? { ...computeRow(site, head, vectors, 0) } : computeTables(site, head, vectors);
  const asking = querySide(site);
  return edited(app, { ...{ site, head, vectors, before, after: before, changes: null, recomputed: null, asking, large }, rows: [], columns: [] });
}

/**
 * @param {HeadContext} app
 * @param {Open} open
 * @returns {Open}
 */
function edited(app, open) {
  const { edits } = app.store.state;
  const changes = open.large ? null : changesOf(edits, open.site.path, open.head);
  const after = changes ? computeTables(open.site, open.head, open.vectors, changes, open.before) : open.before;
  const about = withReplacedTokens(app.about, edits);
  const rows = ticksOf(about, open.asking, open.site.n_query);
  return { ...open, changes, after, recomputed: null, rows, columns: ticksOf(about, open.site.answers, open.site.n_key) };
}
