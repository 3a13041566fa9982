// Sliders that move the window over the positions of a long text.

import { el, fill } from "../dom.js";

/**
 * Show a slider for each side that has more positions than rows.
 * @param {import("../app.js").App} app
 * @param {HTMLElement} element
 * @param {import("../source.js").Flow} flow
 * @param {import("../flow_layout.js").Layout} layout
 * @param {(side: number, first: number) => void} move
 */
export function positionSliders({ t }, element, flow, layout, move) {
  const sides = flow.sides.map((side, s) => ({ side, s, band: layout.bands[s] })).filter(({ side, band }) => band.count < side.n_tokens);
  const labels = sides.map(({ side, band }) => t("flowWindow", { side: t(side.name), first: band.first, last: band.stop - 1, n: side.n_tokens }));
  const known = sides.map(({ s, band }) => `${s} ${band.count}`).join();
  if (element.dataset.known !== known || !sides.length) {
    fill(element, sides.map(({ side, s, band }) => el("label", {},
      el("input", { type: "range", min: 0, max: side.n_tokens - band.count, "data-side": s, oninput: (/** @type {any} */ event) => move(s, Number(event.target.value)) }), el("span.small"))));
  }
  element.dataset.known = known;
  element.querySelectorAll("label").forEach((label, n) => { // a slider in use stays in place
    const [slider, text] = /** @type {[HTMLInputElement, Element]} */ (/** @type {unknown} */ ([label.firstElementChild, label.lastElementChild]));
    slider.value = String(sides[n].band.first);
    slider.setAttribute("aria-label", labels[n]);
    text.textContent = labels[n];
  });
}
