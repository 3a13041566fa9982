// Zoom and pan of a heat map: wheel, drag, two fingers, buttons and keys.

import { el, pointIn } from "../dom.js";

/**
 * @typedef {import("./plot.js").Plot} Plot
 * @typedef {import("./heatmap.js").Size} Size
 * @typedef {import("./heatmap.js").Span2} Span2
 * @typedef {import("./heatmap.js").Viewport} Viewport
 */

/** Fewer positions are not shown larger. */
const MIN_SPAN = 8;
const BUTTON_STEP = 0.625;

/**
 * Move the window of a heat map; every picture that shares it is drawn again.
 * @param {Viewport} viewport
 * @param {Span2} whole
 */
export function zoomer(viewport, whole) {
  const seen = () => viewport.window ?? whole;
  const go = (/** @type {Span2} */ next) => {
    const all = next.across[1] - next.across[0] >= whole.across[1] && next.down[1] - next.down[0] >= whole.down[1];
    viewport.window = all ? null : next;
    viewport.pictures?.forEach(({ show }) => show());
  };
  return {
    seen,
    /** Show `by` times as many positions; the share (u, v) of the picture stays in place. */
    zoom: (/** @type {number} */ by, u = 0.5, v = 0.5, from = seen()) => go({ across: zoomed(from.across, u, by, whole.across), down: zoomed(from.down, v, by, whole.down) }),
    pan: (/** @type {number} */ u, /** @type {number} */ v, from = seen()) => go({ across: moved(from.across, -u, whole.across), down: moved(from.down, -v, whole.down) }),
    fit: () => go(whole),
    /** Zoom around a place, in positions. */
    zoomAt: (/** @type {number} */ by, /** @type {number} */ across, /** @type {number} */ down) => {
      const from = seen();
      const share = (/** @type {[number, number]} */ span, /** @type {number} */ at) => Math.min(1, Math.max(0, (at + 0.5 - span[0]) / (span[1] - span[0])));
      const [u, v] = [share(from.across, across), share(from.down, down)];
      const inside = across >= from.across[0] && across < from.across[1] && down >= from.down[0] && down < from.down[1];
      go({ across: zoomed(from.across, inside ? u : 0.5, by, whole.across), down: zoomed(from.down, inside ? v : 0.5, by, whole.down) });
    },
  };
}

/** @typedef {ReturnType<typeof zoomer>} Zoomer */

/**
 * Return the buttons; the keys + − 0 press them. They zoom around the selected cell if it is visible.
 * @param {Plot["t"]} t
 * @param {Zoomer} zoom
 * @param {() => [number, number]} chosen the selected position across and down
 */
export function zoomButtons(t, zoom, chosen) {
  const button = (/** @type {"zoomIn" | "zoomOut" | "zoomFit"} */ name, /** @type {string} */ sign, /** @type {() => void} */ onclick) =>
    el("button.icon", { "data-zoom": name, title: t(name), "aria-label": t(name), onclick }, sign);
  const element = el("div.heat-zoom.tools", { role: "group", "aria-label": t("zoom") },
    button("zoomOut", "−", () => zoom.zoomAt(1 / BUTTON_STEP, ...chosen())),
    button("zoomIn", "+", () => zoom.zoomAt(BUTTON_STEP, ...chosen())),
    button("zoomFit", "⤢", () => zoom.fit()));
  return element;
}

/**
 * @param {SVGElement} over
 * @param {Plot} plot
 * @param {Size} size
 * @param {Zoomer} zoom
 */
export function listen(over, plot, size, zoom) {
  const share = (/** @type {{ clientX: number, clientY: number }} */ event) => {
    const { x, y } = pointIn(over, event);
    return [(x - size.left) / size.wide, (y - size.top) / size.tall];
  };
  const place = (/** @type {any} */ event) => {
    const { across, down } = zoom.seen();
    const [u, v] = share(event);
    if (u < 0 || v < 0 || u >= 1 || v >= 1) return null;
    const pair = [Math.floor(down[0] + v * (down[1] - down[0])), Math.floor(across[0] + u * (across[1] - across[0]))];
    return plot.turned ? [pair[1], pair[0]] : pair;
  };
  const fingers = followFingers(over, size, zoom, share);
  over.addEventListener("pointermove", (event) => {
    const found = fingers.isMoving(event) ? null : place(event);
    if (found) plot.onhover(found[0], found[1]);
  });
  over.addEventListener("pointerleave", () => plot.onhover(-1, -1));
  over.addEventListener("click", (event) => {
    const found = fingers.hasMoved() ? null : place(event);
    if (found) plot.onpick(found[0], found[1]);
  });
  over.addEventListener("wheel", (event) => {
    if (!size.zooms && !event.ctrlKey) return; // a small picture lets the page scroll
    event.preventDefault();
    const [u, v] = share(event);
    zoom.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * (event.ctrlKey ? 0.01 : 0.004)), u, v);
  }, { passive: false });
}

/**
 * Pan with one pointer and zoom with two.
 * @param {SVGElement} over
 * @param {Size} size
 * @param {Zoomer} zoom
 * @param {(event: PointerEvent) => number[]} share
 */
function followFingers(over, size, zoom, share) {
  /** @type {Map<number, number[]>} the shares of the picture at which the pointers are */
  const down = new Map();
  /** @type {{ from: Span2, middle: number[], apart: number } | null} */
  let grip = null;
  let moved = false;
  const read = () => {
    const [a, b = a] = [...down.values()];
    return { middle: [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2], apart: Math.hypot((a[0] - b[0]) * size.wide, (a[1] - b[1]) * size.tall) };
  };
  const hold = () => (grip = down.size ? { from: zoom.seen(), ...read() } : null);
  over.addEventListener("pointerdown", (event) => {
    if (!down.size) moved = false;
    down.set(event.pointerId, share(event));
    hold();
  });
  for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
    over.addEventListener(name, (/** @type {any} */ event) => {
      down.delete(event.pointerId);
      hold();
    });
  }
  return {
    hasMoved: () => moved,
    isMoving: (/** @type {PointerEvent} */ event) => {
      if (!down.has(event.pointerId) || !grip || !event.buttons) return false;
      down.set(event.pointerId, share(event));
      const { middle, apart } = read();
      const [u, v] = [middle[0] - grip.middle[0], middle[1] - grip.middle[1]];
      moved ||= down.size > 1 || Math.hypot(u * size.wide, v * size.tall) > 4;
      if (!moved) return true;
      if (down.size > 1 && apart > 0 && grip.apart > 0) zoom.zoom(grip.apart / apart, grip.middle[0], grip.middle[1], grip.from);
      else zoom.pan(u, v, grip.from);
      return true;
    },
  };
}

/**
 * @param {[number, number]} span
 * @param {number} by a share of the span
 * @param {[number, number]} whole
 * @returns {[number, number]}
 */
function moved(span, by, whole) {
  const width = span[1] - span[0];
  const start = Math.min(Math.max(span[0] + by * width, whole[0]), whole[1] - width);
  return [start, start + width];
}

/**
 * @param {[number, number]} span
 * @param {number} at the share of the span that stays in place
 * @param {number} by
 * @param {[number, number]} whole
 * @returns {[number, number]}
 */
function zoomed(span, at, by, whole) {
  const width = Math.min(Math.max((span[1] - span[0]) * by, Math.min(MIN_SPAN, whole[1])), whole[1] - whole[0]);
  const start = span[0] + at * (span[1] - span[0] - width);
  return moved([start, start + width], 0, whole);
}
