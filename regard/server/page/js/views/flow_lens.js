// The lens on the rails of the flow: after each layer, the token that the model would predict there.

import { el, fill } from "../dom.js";
import { rowMiddle } from "../flow_layout.js";
import { full, probability, short } from "../format.js";
import { readableSide } from "../selection.js";
import { labelOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Lens} Lens
 * @typedef {import("../flow_layout.js").Layout} Layout
 * @typedef {import("../source.js").Flow} Flow
 * @typedef {{ name: string, probability: number, entropy: number, divergence: number }} Reading
 */

/** Words in less space than this are left out; from the second width on, they have a number. */
const [MIN_WIDTH, NUMBER_WIDTH] = [26, 74];
/** The width that the picture needs for words, and the width that one of them needs next to the other side. */
const [LEAST_WIDTH, GOOD_WIDTH] = [880, 44];
/** The most that a word covers of the lines behind it. */
const MAX_WIDTH = 118;

export class FlowLens {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {Map<number, Lens>} the windows that are loaded, by their first position */
    this.windows = new Map();
    this.loads = 0;
    this.element = el("div.flow-lens", { "aria-hidden": "true" });
    const input = (this.input = el("input", { type: "checkbox", onchange: () => app.store.set({ lens: input.checked }) }));
    this.button = el("label.flow-lens-switch", { title: app.t("flowLensHelp") }, input, app.t("flowLens"));
  }

  /** Whether words can be read from the rails of this model: those of recurrent models are other vectors. */
  get offered() {
    return Boolean(this.app.source.lens) && readableSide(this.app.about) !== null;
  }

  get on() {
    return this.app.store.state.lens && this.offered;
  }

  /** The width that the picture needs for words, in pixels. */
  get leastWidth() {
    return this.on ? LEAST_WIDTH : 0;
  }

  /**
   * Return whether the words can be read where a layout leaves space for them.
   * @param {Layout} layout
   */
  fits(layout) {
    return !this.on || this.places(layout).every(({ room }) => room >= GOOD_WIDTH);
  }

  /** Forget what was read, as after an edit or for another text. */
  reset() {
    this.windows.clear();
    this.loads++;
  }

  /**
   * Show the words of the visible rows; those that are not known are loaded.
   * @param {Layout} layout
   * @param {Flow} flow
   */
  async place(layout, flow) {
    const { app, on } = this;
    this.button.hidden = !this.offered;
    this.input.checked = on;
    this.element.hidden = !on;
    if (!on) return fill(this.element);
    const mine = ++this.loads;
    fill(this.element, this.words(layout, flow)); // what is known, at once
    const { first, stop } = layout.bands[layout.bands.length - 1];
    for (let position = first; position < stop; ) {
      const known = this.windowAt(position);
      const found = known ?? (await app.whileBusy(this.load(position)));
      if (!found || mine !== this.loads) return undefined;
      if (!known) fill(this.element, this.words(layout, flow));
      position = found.entries === "classes" ? stop : found.start + found.positions.length;
    }
    this.element.dataset.ready = String(mine);
    return undefined;
  }

  /** @param {number} position */
  async load(position) {
    const { source, store } = this.app;
    const found = await source.lens?.(store.state.edits, position).catch(() => null);
    if (found) this.windows.set(found.start, found);
    return found ?? null;
  }

  /** @param {number} position */
  windowAt(position) {
    return [...this.windows.values()].find((one) => one.entries === "classes" || (position >= one.start && position < one.start + one.positions.length));
  }

  /**
   * Return what the lens reads at a station and a position; null where it reads nothing.
   * @param {string} path
   * @param {number} position
   * @returns {Reading | null}
   */
  at(path, position) {
    const data = this.app.store.state.lens ? this.windowAt(position) : undefined;
    const i = data ? data.stations.indexOf(path) : -1;
    if (!data || i < 0 || (data.entries === "classes" && position > 0)) return null;
    const j = data.entries === "classes" ? 0 : position - data.start;
    const id = data.ids[i][j][0];
    return { name: labelOf(data.names[id] ?? String(id)), probability: data.probabilities[i][j][0], entropy: data.entropy[i][j], divergence: data.divergence[i][j] };
  }

  /**
   * @param {Layout} layout
   * @param {Flow} flow
   */
  words(layout, flow) {
    const side = flow.sides.length - 1;
    const band = layout.bands[side];
    return this.places(layout).filter(({ room }) => room >= MIN_WIDTH).flatMap(({ column, ...place }) =>
      Array.from({ length: band.stop - band.first }, (_, k) => this.word(layout, side, column, band.first + k, place)));
  }

  /**
   * Return where the words of each layer go: behind its last station, over the lines of the next one.
   * @param {Layout} layout
   */
  places(layout) {
    return layout.columns.flatMap(({ station, x, collapsed, side }, column) => {
      const next = layout.columns[column + 1];
      const ends = next?.side === side && next.station.layer !== station.layer;
      if (side !== layout.bands.length - 1 || collapsed || !ends || next.collapsed || next.station.kind === "output") return []; // the prediction stands next to the last layer
      const left = x + layout.strip + 3;
      return [{ column, path: station.path, left, room: Math.min(MAX_WIDTH, next.x - left - 3) }];
    });
  }

  /**
   * @param {Layout} layout
   * @param {number} side
   * @param {number} column
   * @param {number} position
   * @param {{ path: string, left: number, room: number }} place
   */
  word(layout, side, column, position, { path, left, room }) {
    const read = this.at(path, position);
    if (!read) return null;
    const size = Math.max(9, Math.min(12, layout.row * 0.58));
    const tall = Math.min(layout.row - 1, size + 7);
    const styles = { left: `${left}px`, top: `${rowMiddle(layout, side, position) - tall / 2}px`, height: `${tall}px`, "max-width": `${room}px`, "font-size": `${size}px`, "--share": `${Math.round(100 * read.probability)}%` };
    return el("span.flow-word", { style: styles, "data-side": side, "data-column": column, "data-position": position, "data-place": `${path}@${position}` },
      el("b", {}, read.name), room >= NUMBER_WIDTH ? el("span.digits", {}, probability(read.probability)) : "");
  }

  /**
   * Return the strip that the word at a point is read from.
   * @param {number} x
   * @param {number} y
   * @returns {import("../flow_layout.js").Place | null}
   */
  placeAt(x, y) {
    const words = /** @type {HTMLElement[]} */ ([...this.element.querySelectorAll(".flow-word:not(.ahead)")]);
    const found = words.find((one) => x >= one.offsetLeft && x <= one.offsetLeft + one.offsetWidth && y >= one.offsetTop && y <= one.offsetTop + one.offsetHeight);
    const [side, column, position] = ["side", "column", "position"].map((name) => Number(found?.dataset[name]));
    return found ? { part: "strip", side, column, position } : null;
  }

  /**
   * During a pass, show the words that it has reached.
   * @param {number} at
   */
  follow(at) {
    if (this.element.hidden) return;
    for (const word of /** @type {NodeListOf<HTMLElement>} */ (this.element.querySelectorAll(".flow-word"))) {
      word.classList.toggle("ahead", Number(word.dataset.column) >= at - 1e-6);
    }
  }
}

/**
 * Return the lines of a hover text: the token, its probability, the entropy and the divergence.
 * @param {App["t"]} t
 * @param {Reading} read
 */
export function describeReading(t, read) {
  const number = (/** @type {number} */ x, /** @type {string} */ text) => el("dd.digits", { title: full(x), "data-value": x }, text);
  return el("div.flow-reading", {}, el("p", {}, `${t("lensHere")}: `, el("b", {}, read.name)),
    el("dl.numbers", {}, el("dt", {}, t("lens_probability")), number(read.probability, probability(read.probability)),
      el("dt", {}, t("lens_entropy")), number(read.entropy, t("lensBits", { x: short(read.entropy) })),
      el("dt", {}, t("lens_divergence")), number(read.divergence, t("lensBits", { x: short(read.divergence) }))));
}
