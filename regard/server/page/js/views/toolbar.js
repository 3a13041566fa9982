// The toolbar of a pattern: view, stage, filter, words, transpose.

import { el } from "../dom.js";
import { viewsOf } from "../selection.js";
import { SHOWN_STAGES } from "../state.js";

/** @typedef {import("../app.js").App} App */

/**
 * @param {App} app
 */
export function toolbar(app) {
  const { t, store } = app;
  const views = [...new Set(app.sites.flatMap((site) => viewsOf(app, site)))];
  const view = choice(app, "view", views, (one) => t(/** @type {any} */ (`view_${one}`)));
  const stage = choice(app, "stage", [...SHOWN_STAGES], (one) => t(/** @type {any} */ (one === "all" ? "allStages" : one)));
  const words = el("input", { type: "checkbox", onchange: () => store.set({ words: words.checked }) });
  const turned = el("button.quiet.turn", { onclick: () => store.set({ turned: !store.state.turned }), title: t("keyTurn") }, "⇄ ", t("turn"));
  const mass = el("input", { type: "range", min: 0.5, max: 1, step: 0.01, "aria-label": t("mass"), oninput: () => store.set({ mass: Number(mass.value) }) });
  const share = el("output");
  const element = el("div.toolbar.tools", {},
    el("div.row", {}, view.element, stage.element),
    el("div.row.options", {},
      el("label", { title: t("massHelp") }, t("mass"), mass, share),
      el("label", {}, words, t("words")),
      turned));
  return {
    element,
    update: () => {
      const { state } = store;
      view.update(state.view, viewsOf(app, app.open.site));
      stage.update(state.stage);
      words.checked = state.words;
      mass.value = String(state.mass);
      share.textContent = `${Math.round(100 * state.mass)}%`;
      turned.setAttribute("aria-pressed", String(state.turned));
      element.dataset.view = state.view;
    },
  };
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
    el("button", { role: "radio", "data-choice": one, onclick: () => app.store.set(/** @type {any} */ ({ [name]: one })) }, text(one)));
  return {
    element: el(`div.choice.${name}`, { role: "radiogroup", "aria-label": app.t(name === "view" ? "view" : "stage") }, buttons),
    update: (/** @type {string} */ chosen, /** @type {string[]} */ possible = choices) => {
      for (const button of buttons) {
        button.setAttribute("aria-checked", String(button.dataset.choice === chosen));
        button.hidden = !possible.includes(/** @type {string} */ (button.dataset.choice));
      }
    },
  };
}
