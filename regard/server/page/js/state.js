// The state that all panes share, and its text form in the address.

import { readComparison } from "./compare_spec.js";
import { readCount, readEdits, writeEdits } from "./edits.js";
import { STAGES } from "./source.js";

/**
 * @typedef {object} State
 * @property {"flow" | "explore" | "decoding" | "worked"} page the whole model, one head, the writing of the answer, or the worked example
 * @property {string} site
 * @property {number} head
 * @property {number} query
 * @property {number} key
 * @property {boolean} pinned whether query and key no longer follow the mouse
 * @property {"grid" | "lines" | "bars" | "graph" | "image" | "space" | "rollout" | "exact" | "lens" | "attribution"} view
 * @property {"scores" | "masked" | "weights" | "all"} stage
 * @property {boolean} turned whether rows and columns are swapped
 * @property {boolean} words
 * @property {number} mass show only the keys that make up this share of a query's weight
 * @property {"layer" | "entropy" | "distance" | "diagonal" | "peak" | "alignment"} sort
 * @property {"overview" | "pattern" | "steps" | ""} pane the enlarged pane
 * @property {string} heads whose arrows the space view shows, as "0,2"; "" for all
 * @property {number} spin rotation of the space view in degrees
 * @property {string} language
 * @property {string} kept the head that the reader chose, as "PATH@HEAD"; "" if the page chooses
 * @property {import("./edits.js").Edit[]} edits
 * @property {import("./edits.js").Edit[]} resting edits that do not apply to this trace
 * @property {string} name of the edits, given by the reader
 * @property {number} sampling temperature of a language model
 * @property {string} work the numbers of the worked example, if changed
 * @property {boolean} editing whether the drawer with the edit controls is open
 * @property {boolean} lens whether the flow shows what each layer would predict
 * @property {boolean} split whether before and after an edit are two grids instead of one
 * @property {string} spot the place of the flow whose numbers are open, as "PATH@POSITION"
 * @property {string} compare what the open head is compared with, as compare_spec.js writes it; "" for nothing
 * @property {boolean} drawing whether clicks on the pattern change its mask
 * @property {number} lesson the open lesson, counted from 1; 0 for none
 * @property {number} step the paragraph of the lesson, counted from 0
 * @property {string[]} learned names of the lessons that are done; kept by the browser, not in the address
 */

const VIEWS = ["grid", "lines", "bars", "graph", "image", "space", "rollout", "exact", "lens", "attribution"];
/** The stages that can be shown, and "all" of them next to each other. */
export const SHOWN_STAGES = /** @type {const} */ ([...STAGES, "all"]);
export const SORTS = /** @type {const} */ (["layer", "entropy", "distance", "diagonal", "peak", "alignment"]);
export const PANES = /** @type {const} */ (["overview", "pattern", "steps"]);

/** Parsers of the address; undefined if a text is not valid. */
/** @type {Record<string, (text: string) => any>} */
const READERS = {
  page: oneOf(["flow", "explore", "decoding", "worked"]),
  site: (text) => text || undefined,
  head: readCount,
  query: readCount,
  key: readCount,
  pinned: (text) => text === "1",
  view: oneOf(VIEWS),
  stage: oneOf(SHOWN_STAGES),
  turned: (text) => text === "1",
  words: (text) => text === "1",
  mass: (text) => (Number(text) > 0 && Number(text) <= 1 ? Number(text) : undefined),
  sort: oneOf(SORTS),
  pane: oneOf(PANES),
  heads: (text) => (/^(none|\d+(,\d+)*)$/.test(text) ? text : undefined),
  spin: (text) => (/^\d+$/.test(text) && Number(text) <= 180 ? Number(text) : undefined),
  language: oneOf(["en", "ko"]),
  kept: (text) => (/^[\w.]+@\d+$/.test(text) ? text : undefined),
  edits: readEdits,
  resting: readEdits,
  name: (text) => text,
  sampling: (text) => (Number(text) >= 0 && Number(text) <= 2 ? Number(text) : undefined),
  work: (text) => text,
  spot: (text) => (/^[\w.]+@\d+$/.test(text) ? text : undefined),
  editing: (text) => text === "1",
  lens: (text) => text === "1",
  split: (text) => text === "1",
  compare: (text) => (readComparison(text) ? text : undefined),
  lesson: readCount,
  step: readCount,
};

/**
 * Storage of the state: the hash of the page, or a model value in notebooks.
 * @typedef {{ read: () => string, write: (text: string, turns?: boolean) => void, listen: (f: (turned?: boolean) => void) => void, flush?: () => void }} Address
 */

/** Marks the entries of the history between which the reader went from page to page. */
const TURNED = "page";

/** @returns {Address} */
export function pageAddress() {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let writing;
  /** @type {(() => void) | null} */
  let waiting = null;
  const flush = () => {
    clearTimeout(writing);
    waiting?.();
    waiting = null;
  };
  addEventListener("popstate", () => { // another entry of the history has its own state
    clearTimeout(writing);
    waiting = null;
  });
  return {
    read: () => location.hash.slice(1),
    write: (text, turns = false) => {
      clearTimeout(writing); // browsers limit how often the address may change
      if (turns && hasAddress()) {
        flush();
        history.replaceState(TURNED, "");
        return history.pushState(TURNED, "", `#${text}`);
      }
      waiting = () => history.replaceState(history.state, "", `#${text}`);
      if (hasAddress()) writing = setTimeout(flush, 120);
      return undefined;
    },
    flush: () => hasAddress() && flush(),
    listen: (f) => addEventListener("hashchange", () => f(history.state === TURNED)),
  };
}

/** Return whether the page has its own address; a srcdoc frame has none. */
export function hasAddress() {
  return location.protocol !== "about:";
}

export class Store {
  /**
   * @param {State} start
   * @param {Address} address
   */
  constructor(start, address) {
    this.start = start;
    this.address = address;
    /** @type {State} */
    this.state = { ...start, ...readState(address.read()) };
    /** @type {((state: State, changed: Set<string>) => void)[]} */
    this.listeners = [];
    /** @type {State["edits"][]} */
    this.past = [];
    /** Limit a state to what applies to the trace. */
    this.fit = (/** @type {State} */ state) => state;
    /** Whether the address belongs to a trace that is still loading. */
    this.waits = false;
    address.listen((turned = false) => this.waits || this.read(turned));
  }

  /** @param {(state: State, changed: Set<string>) => void} listener */
  subscribe(listener) {
    this.listeners.push(listener);
  }

  /**
   * Take the state from the address. Back and forward between pages keep the edits.
   * @param {boolean} turned
   */
  read(turned) {
    const { edits, resting, name } = this.state;
    this.change({ ...readFullState(this.start, this.address.read()), ...(turned ? { edits, resting, name } : {}) }, false);
    if (turned) this.address.write(writeState(this.state, this.start));
  }

  /**
   * @param {Partial<State>} parts
   * @param {boolean} [continues] whether this continues the last edit, as while a slider moves
   */
  set(parts, continues = false) {
    if (parts.edits && !continues) this.past.push([...this.state.edits, ...this.state.resting]);
    this.change({ ...this.choice(parts), ...parts }, true);
  }

  /**
   * Return what a reader who opens a head, or edits the open one, thereby keeps.
   * @param {Partial<State>} parts
   * @returns {Partial<State>}
   */
  choice({ site = this.state.site, head = this.state.head, edits = [] }) {
    const opens = site !== this.state.site || head !== this.state.head;
    return opens || edits.length > this.state.edits.length ? { kept: `${site}@${head}` } : {};
  }

  /**
   * Set the state for another trace.
   * @param {State} start
   * @param {State} state
   */
  begin(start, state) {
    this.start = start;
    this.state = state;
    this.address.write(writeState(state, start));
  }

  /** Undo the last edit. */
  undo() {
    const before = this.past.pop();
    this.change(before ? { edits: before, resting: [] } : { edits: this.state.edits.slice(0, -1) }, true);
  }

  /**
   * @param {Partial<State>} parts
   * @param {boolean} write
   */
  change(parts, write) {
    const old = /** @type {any} */ (this.state);
    const next = this.fit({ ...this.state, ...parts });
    const changed = new Set([...Object.keys(parts), "edits", "resting"].filter((key) => !same(old[key], /** @type {any} */ (next)[key])));
    if (!changed.size) return;
    this.state = next;
    if (write) this.address.write(writeState(this.state, this.start), changed.has("page") && !next.lesson);
    for (const listener of this.listeners) listener(this.state, changed);
  }
}

/**
 * Return the state as text: the selection, and everything that differs from the start.
 * @param {State} state
 * @param {State} start
 */
export function writeState(state, start) {
  const parts = [];
  for (const key of Object.keys(READERS)) {
    const value = /** @type {any} */ (state)[key];
    const selected = ["site", "head", "query", "key"].includes(key);
    if (key === "page" ? value === "explore" : !selected && same(value, /** @type {any} */ (start)[key])) continue;
    const text = key === "edits" || key === "resting" ? writeEdits(value) : typeof value === "boolean" ? Number(value) : value;
    parts.push(`${key}=${encodeURI(String(text)).replace(/[&#=]/g, encodeURIComponent)}`);
  }
  return parts.join("&");
}

/**
 * @param {string} text
 * @returns {Partial<State>}
 */
export function readState(text) {
  /** @type {Record<string, any>} */
  const made = {};
  for (const part of text.split("&")) {
    const [key, value = ""] = part.split("=");
    const read = READERS[key]?.(decode(value));
    if (read !== undefined) made[key] = read;
  }
  if (made.site && !made.page) made.page = "explore"; // a link to a head
  return made;
}

/**
 * @param {State} start
 * @param {string} text
 */
export function readFullState(start, text) {
  return { ...start, ...readState(text) };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {readonly string[]} names */
function oneOf(names) {
  return (/** @type {string} */ text) => (names.includes(text) ? text : undefined);
}

/**
 * @param {any} a
 * @param {any} b
 */
function same(a, b) {
  return a === b || (Array.isArray(a) && JSON.stringify(a) === JSON.stringify(b));
}
