// The toolbar of a pattern: view, stage, filter, words, transpose, one grid or two.
// What does not fit next to the title is folded behind "⋯".

import { el } from "../dom.js";
import { check, radioGroup } from "../radio_group.js";
import { openView, viewsFrom } from "../selection.js";
import { SHOWN_STAGES } from "../state.js";

/** @typedef {import("../app.js").App} App */

/** Views of the pattern of one head, which are folded last. */
const PATTERNS = ["grid", "lines", "bars", "graph", "image"];

/**
 * @param {App} app
 */
export function toolbar(app) {
  const { t, store } = app;
  const views = [...new Set(app.sites.flatMap((site) => viewsFrom(app, site)))];
  const nameOf = (/** @type {string} */ one) => t(/** @type {any} */ (`view_${one}`));
  const [view, deeper] = [true, false].map((isPattern) => choice(app, "view", views.filter((one) => PATTERNS.includes(one) === isPattern), nameOf));
  const stage = choice(app, "stage", [...SHOWN_STAGES], (one) => t(/** @type {any} */ (one === "all" ? "allStages" : one)));
  const words = el("input", { type: "checkbox", onchange: () => store.set({ words: words.checked }) });
  const split = el("input", { type: "checkbox", onchange: () => store.set({ split: split.checked }) });
  const turned = el("button.quiet.turn", { onclick: () => store.set({ turned: !store.state.turned }), title: t("keyTurn") }, "⇄ ", t("turn"));
  const mass = el("input", { type: "range", min: 0.5, max: 1, step: 0.01, "aria-label": t("mass"), oninput: () => store.set({ mass: Number(mass.value) }) });
  const share = el("output");
  const options = el("div.options", {},
    el("label", { title: t("massHelp") }, t("mass"), mass, share),
    el("label", {}, words, t("words")),
    el("label.split", { title: t("splitHelp") }, split, t("split")),
    turned);
  const summary = el("summary.icon", { title: t("moreTools"), "aria-label": t("moreTools") });
  const more = el("details.menu.more", {}, summary, el("div.items", {}, el("div.folded"), options));
  const element = el("div.toolbar.tools", {}, view.element, deeper.element, stage.element, more);
  let named = false; // whether the button has space for its name
  const nameHidden = () => {
    const chosen = more.querySelector('.view [aria-checked="true"]:not([hidden])');
    const hidden = view.element.parentElement === element ? chosen : null; // a view that is chosen in the menu
    const name = hidden?.textContent ?? (named ? t("more") : "");
    summary.textContent = `${name} ⋯`.trim();
    summary.classList.toggle("named", name !== "");
  };
  return {
    element,
    /** Move the choices that do not fit into the menu, or back; for the first one and the menu's name the title may shrink by `slack`. */
    fold: (/** @type {number} */ room, slack = 0) => {
      const free = fold(element, room, slack, [view.element, deeper.element, stage.element]);
      named = !store.state.compare && free >= NAME_WIDTH - Math.min(slack, 30);
      nameHidden();
    },
    update: () => {
      const { state } = store;
      for (const one of [view, deeper]) one.update(state.view, viewsFrom(app, app.open.site));
      stage.update(state.stage);
      words.checked = state.words;
      split.checked = state.split;
      mass.value = String(state.mass);
      share.textContent = `${Math.round(100 * state.mass)}%`;
      turned.setAttribute("aria-pressed", String(state.turned));
      element.dataset.view = state.view;
      nameHidden();
    },
  };
}

/** The width of the "⋯" button, of its name and of gaps, in pixels. */
const MORE_WIDTH = 40;
const NAME_WIDTH = 50;
const GAP = 10;

/** @type {WeakMap<HTMLElement, number>} */
const WIDTHS = new WeakMap();

/**
 * Keep the first choices that fit in a width; the others go into the menu. Return the width that is left.
 * @param {HTMLElement} element
 * @param {number} room
 * @param {number} slack more that the first choice may take
 * @param {HTMLElement[]} choices the most important first
 */
function fold(element, room, slack, choices) {
  const folded = /** @type {HTMLElement} */ (element.querySelector(".folded"));
  let left = room - MORE_WIDTH;
  let free = left;
  let fits = true;
  for (const one of choices) {
    if (one.parentElement === element && one.offsetWidth) WIDTHS.set(one, one.offsetWidth);
    left -= (WIDTHS.get(one) ?? 0) + GAP;
    fits &&= left + (one === choices[0] ? slack : 0) >= 0;
    if (fits) free = left;
    if (fits && one.parentElement === folded) element.insertBefore(one, element.querySelector(":scope > .stage, :scope > .more"));
    else if (!fits && one.parentElement === element) folded.append(one);
  }
  return free;
}

/**
 * A group of radio buttons.
 * @param {App} app
 * @param {"view" | "stage"} name
 * @param {string[]} choices
 * @param {(one: string) => string} text
 */
function choice(app, name, choices, text) {
  const buttons = choices.map((one) =>
    el("button", { role: "radio", "data-choice": one, onclick: () => app.store.set(name === "view" ? openView(app, /** @type {any} */ (one)) : /** @type {any} */ ({ [name]: one })) }, text(one)));
  const element = radioGroup(el(`div.choice.${name}`, { role: "radiogroup", "aria-label": app.t(name === "view" ? "view" : "stage") }, buttons));
  return {
    element,
    update: (/** @type {string} */ chosen, /** @type {string[]} */ possible = choices) => {
      for (const button of buttons) button.hidden = !possible.includes(/** @type {string} */ (button.dataset.choice));
      element.hidden = buttons.every((button) => button.hidden);
      check(buttons, (button) => button.dataset.choice === chosen);
    },
  };
}
