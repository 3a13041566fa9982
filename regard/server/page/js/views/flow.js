// The whole model: tokens flow from left to right through every layer to the predictions.

import { el, fill, fontFamily, pointIn, sharpen, textWidth, zoomOf } from "../dom.js";
import { firstRowCount, loadRows, rowRange, ROWS_AT_ONCE } from "../flow_rows.js";
import { hasLines, isShown, layoutFlow, placeAt, reachedParts, rowMiddle } from "../flow_layout.js";
import { ticksOf, withReplacedTokens } from "../tokens.js";
import { firstPlace, nextPlace, spokenPlace } from "./flow_cursor.js";
import { describePlace, fillTable, frontName, keysOf, placeDetails, stripFraction } from "./flow_details.js";
import { drawFlow, stripHeight } from "./flow_draw.js";
import { flowLabels, outlinePatch } from "./flow_labels.js";
import { positionSliders } from "./flow_windows.js";
import { flowLegend, rangeOf } from "./flow_legend.js";
import { FlowLens } from "./flow_lens.js";
import { followFront, Playback, playControls, playOnce } from "./flow_play.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Flow} Flow
 * @typedef {import("../source.js").FlowRows} FlowRows
 * @typedef {import("../flow_layout.js").Layout} Layout
 * @typedef {import("../flow_layout.js").Place} Place
 */

/** Width of the predictions: a bar and a token. */
const PREDICTIONS = 164;
const [NARROW, NARROW_PREDICTIONS] = [960, 108]; // below this width the decoder stands below the encoder
const DETAILS = 400; // the least width for the details below the encoder

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function flow(app) {
  const view = new FlowView(app);
  return { element: view.element, update: (changed) => view.update(changed) };
}

class FlowView {
  /** @param {App} app */
  constructor(app) {
    const { t } = app;
    this.app = app;
    /** @type {Flow | null} */
    this.flow = null;
    /** @type {FlowRows[]} */
    this.rows = [];
    /** @type {Layout | null} */
    this.layout = null;
    /** @type {import("../tokens.js").Tick[][]} */
    this.ticks = [];
    this.heads = /** @type {"mean" | "top"} */ ("mean");
    this.firsts = [0, 0];
    this.folded = /** @type {Set<string>} */ (new Set());
    this.unfolded = /** @type {Set<string>} */ (new Set());
    /** @type {{ side: number, position: number } | null} */
    this.pinned = null;
    /** @type {Place | null} */
    this.hovered = null;
    /** @type {Place | null} the place that the arrow keys have reached */
    this.cursor = null;
    this.range = { strongest: [1], most: 1 };
    this.loads = 0;
    this.details = 0;
    this.wider = false; // than the screen: it scrolls
    this.veils = [el("div.flow-veil"), el("div.flow-veil")]; // over what a pass has not reached: the picture itself is drawn once
    this.canvas = /** @type {HTMLCanvasElement} */ (document.createElement("canvas"));
    this.labels = el("div.flow-labels");
    this.lens = new FlowLens(app);
    this.ring = el("div.flow-ring", { hidden: true });
    this.board = el("div.flow-board", { tabindex: 0, role: "application", "aria-label": t("flowLabel"), onkeydown: (/** @type {KeyboardEvent} */ event) => this.press(event) }, this.canvas, el("div.flow-veils", {}, this.veils), this.labels, this.lens.element, this.ring);
    this.scroll = el("div.flow-scroll", {}, this.board);
    this.tip = el("div.flow-tip", { hidden: true, role: "tooltip" });
    this.card = el("aside.flow-details", { "data-says": "", hidden: true });
    this.status = el("p.visually-hidden", { "data-says": "" });
    this.table = el("details.flow-table");
    this.windows = el("div.flow-windows");
    this.playback = new Playback(() => this.show());
    this.controls = playControls(app, this.playback, (at) => frontName(app.t, this.layout, this.flow, at));
    const choice = el("div.choice", { role: "radiogroup", "aria-label": t("flowHeads") }, /** @type {const} */ (["mean", "top"]).map((name) =>
      el("button", { role: "radio", "data-heads": name, "aria-checked": String(name === this.heads), onclick: () => this.chooseHeads(name) }, t(name === "mean" ? "flowHeads_mean" : "flowHeads_top"))));
    this.note = el("div.note.flow-note", {}, t("flowLoading"));
    this.element = el("main.pane.flow-page", {},
      el("header.head", {}, this.controls.element, el("span.gap"), this.windows, this.lens.button, choice),
      el("div.flow-stage", {}, this.scroll, this.note, this.card, this.tip), this.table, this.status);
    this.listen();
  }

  /** @param {Set<string>} changed */
  update(changed) {
    if (["all", "trace", "edits"].some((one) => changed.has(one))) this.load();
    else if (["lens", "size", "theme"].some((one) => changed.has(one))) this.draw();
    else if (changed.has("spot")) this.showDetails();
  }

  /**
   * Highlight the row of a token that the reader has clicked above the picture.
   * @param {{ of: string, position: number }} token
   */
  pinToken({ of, position }) {
    if (!this.flow || !this.layout) return;
    const side = of === "source" ? 0 : this.flow.sides.length - 1;
    this.pin({ side, position });
    if (!isShown(this.layout, side, position)) this.moveWindow(side, position - Math.floor(this.layout.bands[side].count / 2));
  }

  /** @param {{ side: number, position: number } | null} row the highlighted one */
  pin(row) {
    this.pinned = row;
    this.refreshTable();
    this.paint();
  }

  async load() {
    const { app } = this;
    const mine = ++this.loads;
    this.element.setAttribute("aria-busy", "true");
    try {
      const found = await app.source.flow(app.store.state.edits);
      if (mine !== this.loads) return;
      if (!found) return this.showNote(app.t(app.about.live ? "flowNone" : "flowMissing"));
      if (found.sides.some((side, s) => side.n_tokens !== this.flow?.sides[s]?.n_tokens)) this.pinned = this.cursor = this.hovered = null;
      const rows = await loadRows(found, this.firsts, this.firsts.some(Boolean) ? ROWS_AT_ONCE : firstRowCount(app.about));
      if (mine !== this.loads) return;
      this.flow = found;
      this.lens.reset();
      const about = withReplacedTokens(app.about, app.store.state.edits);
      this.ticks = found.sides.map((side) => ticksOf(about, side.tokens, side.n_tokens));
      this.takeRows(rows);
      this.element.classList.remove("empty");
      this.draw();
      this.showDetails();
      playOnce(app.root, this.playback);
    } catch (error) {
      if (mine === this.loads) this.showNote(app.t.error(error));
    } finally {
      if (mine === this.loads) this.element.setAttribute("aria-busy", "false");
    }
  }

  /** @param {FlowRows[]} rows */
  takeRows(rows) {
    [this.rows, this.range] = [rows, rangeOf(rows)];
    if (this.flow) flowLegend(this.app, this.note, this.flow, this.range);
  }

  /** @param {string} text */
  showNote(text) {
    this.flow = null;
    this.element.classList.add("empty");
    fill(this.note, text);
  }

  /** Lay out and draw everything again. */
  draw() {
    const { flow: shown, app } = this;
    if (!shown || !this.element.isConnected) return;
    const image = app.about.image;
    const box = this.scroll.getBoundingClientRect();
    const height = Math.max(340, (innerHeight - (box.top + scrollY)) / zoomOf(this.scroll) - 76);
    const shownWidth = Math.max(300, this.scroll.clientWidth);
    const width = Math.max(shownWidth, this.lens.leastWidth); // words need more than a phone has: it scrolls
    const labels = this.ticks.map((ticks) => (image ? 56 : Math.min(116, 18 + Math.max(24, ...ticks.slice(0, 400).map((tick) => textWidth(tick.label.slice(0, 14), 13))))));
    this.layout = layoutFlow(shown, { width, height, labels, predictions: shownWidth < NARROW ? Math.max(NARROW_PREDICTIONS, ...(app.about.output?.classes ?? []).map((/** @type {any} */ one) => 70 + textWidth(one.name.slice(0, 12), 12))) : PREDICTIONS, stacked: shownWidth < NARROW, rowRange: rowRange(app.about), overflow: 0.3 * height, firsts: this.firsts, folded: this.folded, unfolded: this.unfolded }, (layout) => this.lens.fits(layout));
    if (this.layout.bands.some(({ stop }, s) => stop > this.rows[s].stop && this.rows[s].stop - this.rows[s].start < ROWS_AT_ONCE)) this.moveWindow(0, this.firsts[0]); // a larger window shows more
    this.playback.reset(this.layout.stops.length, shown);
    flowLabels(app, this.labels, { layout: this.layout, flow: shown, ticks: this.ticks, onfold: (name, folded) => this.fold(name, folded), onhover: (place) => this.hover(place, null), onpick: (place) => this.pick(place) });
    const corner = this.layout.labels[1] - labels[1] - 24; // below the encoder, if it is wide enough
    const fits = shown.sides.length > 1 && this.layout.width <= width && corner > 300 && this.layout.bands[1].count * this.layout.row > 150;
    this.note.classList.toggle("corner", fits);
    const free = this.layout.height - this.layout.bands[0].top - this.layout.bands[0].count * this.layout.row - 12;
    this.card.classList.toggle("docked", fits && corner >= DETAILS);
    for (const [name, x] of Object.entries({ room: corner, free, below: this.layout.height - free })) this.element.style.setProperty(`--${name}`, `${x}px`);
    this.element.style.setProperty("--note", fits ? `${this.note.offsetHeight}px` : "0px"); // it may be taller than the picture
    this.wider = this.layout.width > shownWidth;
    for (const [i, { top, height: tall }] of reachedParts(this.layout, 0).parts.entries()) {
      this.veils[i].style.setProperty("top", `${top}px`);
      this.veils[i].style.setProperty("height", `${tall}px`);
    }
    this.board.dataset.columns = JSON.stringify(this.layout.columns.map(({ station, zone, x }) => [station.path, zone, x]));
    this.showWindows();
    this.paint();
    this.lens.place(this.layout, shown);
    this.refreshTable();
  }

  /** Draw the picture with its highlight. */
  paint() {
    const { layout, app } = this;
    if (!layout) return;
    const pen = sharpen(this.canvas, layout.width, layout.height);
    fontFamily();
    drawFlow(pen, { ...this.range, layout, rows: this.rows, heads: this.heads, lit: this.lit(), classes: app.about.output?.classes ?? null });
    for (const label of this.labels.querySelectorAll(".flow-token")) {
      const lit = this.lit();
      label.classList.toggle("on", lit !== null && label.getAttribute("data-place") === `${lit.side} ${lit.position}`);
    }
    if (app.about.image) outlinePatch(app.about.image, this.labels, this.lit()?.position);
    this.show();
  }

  lit() {
    return this.hovered ?? this.cursor ?? this.pinned;
  }

  /** Show the part of the picture that the pass has reached. */
  show() {
    const { layout, playback } = this;
    if (!layout) return;
    const { front, parts } = reachedParts(layout, playback.at);
    this.veils.forEach((veil, i) => {
      const part = playback.isDone ? undefined : parts[i];
      veil.hidden = !part;
      if (part) veil.style.setProperty("transform", `translateX(${part.x.toFixed(1)}px)`);
    });
    if (!playback.isDone && this.wider) followFront(this.scroll, front);
    this.lens.follow(playback.isDone ? Infinity : playback.at);
    this.board.dataset.at = playback.at.toFixed(2);
    this.controls.refresh();
  }

  /** @param {"mean" | "top"} heads */
  chooseHeads(heads) {
    this.heads = heads;
    for (const button of this.element.querySelectorAll("[data-heads]")) button.setAttribute("aria-checked", String(button.getAttribute("data-heads") === heads));
    this.paint();
    this.refreshTable();
  }

  /**
   * @param {string} name
   * @param {boolean} folded whether it is folded now
   */
  fold(name, folded) {
    (folded ? this.folded : this.unfolded).delete(name);
    (folded ? this.unfolded : this.folded).add(name);
    this.draw();
  }

  listen() {
    const at = (/** @type {MouseEvent} */ event) => {
      const { x, y } = pointIn(this.canvas, event);
      const place = this.layout && (this.lens.placeAt(x, y) ?? placeAt(this.layout, x, y));
      return place && { place, y };
    };
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
      const found = at(event);
      this.canvas.classList.toggle("pickable", found !== null && found?.place.part !== "prediction");
      this.hover(found?.place ?? null, event, found?.y);
    });
    this.canvas.addEventListener("pointerleave", () => this.hover(null, null));
    this.canvas.addEventListener("click", (/** @type {PointerEvent} */ event) => {
      const found = at(event);
      if (found) this.pick(found.place);
      else this.pin(null);
    });
    this.board.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
      const place = at(event)?.place;
      const band = place && this.layout?.bands[place.side];
      const n = place && this.flow ? this.flow.sides[place.side].n_tokens : 0;
      if (!place || !band || band.count >= n || event.ctrlKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
      event.preventDefault();
      this.moveWindow(place.side, this.firsts[place.side] + Math.sign(event.deltaY) * Math.max(1, Math.round(band.count / 12)));
    }, { passive: false });
    const follow = (/** @type {any} */ event) => (this.element.isConnected ? this.pinToken(event.detail) : this.app.root.removeEventListener("regard-token", follow));
    this.app.root.addEventListener("regard-token", follow);
    this.board.addEventListener("blur", () => this.moveCursor(null));
  }

  /**
   * @param {Place | null} place
   * @param {PointerEvent | null} event
   * @param {number} [y]
   */
  hover(place, event, y = 0) {
    const moved = place?.side !== this.hovered?.side || place?.position !== this.hovered?.position;
    this.hovered = place;
    if (moved) this.paint();
    this.tip.hidden = !place || !event;
    if (!place || !event || !this.layout) return;
    fill(this.tip, describePlace(this.app, this.shown(), place, stripFraction(this.layout, place, y)));
    const stage = /** @type {HTMLElement} */ (this.tip.parentElement);
    const pointer = pointIn(stage, event);
    const left = Math.min(pointer.x + 16, stage.offsetWidth - this.tip.offsetWidth - 4);
    const below = pointer.y + 18;
    const top = below + this.tip.offsetHeight > stage.offsetHeight ? below - this.tip.offsetHeight - 30 : below;
    this.tip.style.setProperty("transform", `translate(${Math.max(0, left)}px, ${Math.max(0, top)}px)`);
  }

  shown() {
    return /** @type {import("./flow_details.js").Shown} */ ({ flow: this.flow, layout: this.layout, rows: this.rows, ticks: this.ticks, heads: this.heads, lens: this.lens });
  }

  /**
   * Open a place: the head of lines, the units of a slab, the vector of a strip.
   * @param {Place} place
   */
  pick(place) {
    const { store } = this.app;
    const { side, position } = place;
    const again = this.pinned?.side === side && this.pinned.position === position;
    const station = this.layout?.columns[place.column]?.station;
    if (!station || place.part === "label" || place.part === "prediction") return this.pin(again ? null : { side, position });
    this.pin({ side, position });
    if (place.part === "zone" && hasLines(station)) return this.openHead(place, station);
    const units = place.part === "zone" && station.kind === "feed_forward";
    return store.set({ spot: `${units ? station.path.replace(/\.residual$/, "") : station.path}@${position}` });
  }

  /**
   * @param {Place} place
   * @param {import("../source.js").Station} station
   */
  openHead(place, station) {
    const strongest = keysOf({ ...this.shown(), heads: "top" }, place.side, station, place.position)[0];
    this.app.store.set({ page: "explore", site: station.site ?? "", head: strongest?.head ?? 0, query: place.position, key: strongest?.key ?? 0, pinned: true });
  }

  async showDetails() {
    const mine = ++this.details;
    const { spot } = this.app.store.state;
    const [path, position] = spot.split("@");
    const close = () => {
      this.app.store.set({ spot: "" });
      this.board.focus({ preventScroll: true });
    };
    const made = spot && this.flow ? await placeDetails(this.app, this.shown(), { path, position: Number(position) }, close).catch((error) => el("p.note", {}, this.app.t.error(error))) : null;
    if (mine !== this.details) return;
    const opens = this.card.hidden && made;
    this.element.classList.toggle("with-details", !(this.card.hidden = !made));
    fill(this.card, made);
    if (opens) this.card.scrollIntoView({ block: "nearest" });
  }

  refreshTable() {
    const { side, position } = this.cursor ?? this.pinned ?? { side: 0, position: 0 };
    const rows = this.rows[side];
    if (this.flow && rows && position >= rows.start && position < rows.stop) fillTable(this.app, this.table, this.shown(), side, position);
  }

  showWindows() {
    const { layout, flow: shown } = this;
    if (layout && shown) positionSliders(this.app, this.windows, shown, layout, (side, first) => this.moveWindow(side, first));
  }

  /**
   * @param {number} side
   * @param {number} first
   */
  async moveWindow(side, first) {
    const { flow: shown, layout } = this;
    if (!shown || !layout) return;
    this.firsts[side] = Math.max(0, Math.min(first, shown.sides[side].n_tokens - layout.bands[side].count));
    const mine = ++this.loads;
    const rows = await loadRows(shown, this.firsts);
    if (mine !== this.loads) return;
    this.takeRows(rows);
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.board || !this.layout || !this.flow) return;
    const act = { " ": () => this.playback.toggle(), Enter: () => this.pick(this.cursor ?? firstPlace()), Escape: () => (this.app.store.set({ spot: "" }), this.pin(null)) }[event.key];
    const by = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
    if (!act && !by) return;
    event.preventDefault();
    if (act) return act();
    const [across, down] = /** @type {number[]} */ (by);
    this.moveCursor(this.cursor ? nextPlace(this.layout, this.flow, this.cursor, across, down) : firstPlace());
  }

  /** @param {Place | null} place */
  moveCursor(place) {
    if (!place && !this.cursor) return;
    this.cursor = place;
    this.ring.hidden = !place;
    if (!place || !this.layout) return this.paint();
    const band = this.layout.bands[place.side];
    if (!isShown(this.layout, place.side, place.position)) this.moveWindow(place.side, place.position < band.first ? place.position : place.position - band.count + 1).then(() => this.showCursor());
    else this.showCursor();
  }

  showCursor() {
    const { cursor, layout } = this;
    if (!cursor || !layout) return;
    const column = layout.columns[cursor.column];
    const tall = stripHeight(layout.row) + 4;
    const strip = cursor.part === "strip";
    const [x, width] = strip ? [column.x - 2, layout.strip + 4] : [column.zone + 1, column.width - 2];
    const styles = { left: `${x}px`, width: `${width}px`, top: `${rowMiddle(layout, cursor.side, cursor.position) - tall / 2}px`, height: `${tall}px` };
    for (const [key, value] of Object.entries(styles)) this.ring.style.setProperty(key, value);
    this.ring.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.paint();
    this.refreshTable();
    this.status.textContent = spokenPlace(this.app.t, this.shown(), cursor);
  }
}
