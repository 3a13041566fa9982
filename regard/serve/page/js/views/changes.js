// The reader's edits: each can be taken back, all can be shared.

import { el, fill, isPage } from "../dom.js";
import { short } from "../format.js";
import { copyText } from "../save.js";
import { siteNamed } from "../select.js";
import { hasAddress } from "../state.js";
import { askingSide, ticksOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../edits.js").Edit} Edit
 */

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function changesBar(app) {
  const element = el("section.changes", { "aria-label": app.say("edits") });
  return {
    element,
    update: () => {
      const { edits } = app.store.state;
      element.hidden = edits.length === 0;
      fill(element, edits.length ? bar(app, edits) : "");
    },
  };
}

/**
 * @param {App} app
 * @param {Edit[]} edits
 */
function bar(app, edits) {
  const { say, store } = app;
  const chips = edits.map((edit, i) =>
    el("li", {}, el("button.chip", { title: say("goThere"), onclick: () => store.set(placeOf(edit)) }, describe(app, edit)),
      el("button.icon", { title: say("takeBack"), "aria-label": say("takeBack"), onclick: () => store.set({ edits: edits.filter((_, n) => n !== i) }) }, "×")));
  return [
    el("h2", {}, `${say("edits")} (${edits.length})`),
    el("ul", {}, chips),
    el("span.gap"),
    el("button.quiet", { onclick: () => store.undo() }, "↶ ", say("undo")),
    el("button.quiet", { onclick: () => store.set({ edits: [] }) }, say("reset")),
    hasAddress() && isPage(app.root) ? el("button.quiet", { onclick: () => copyText(app, location.href) }, say("copyLink")) : "",
  ];
}

/** @param {Edit} edit */
function placeOf(edit) {
  const { kind: _, value: __, ...place } = /** @type {any} */ (edit);
  return place;
}

/**
 * @param {App} app
 * @param {Edit} edit
 */
function describe(app, edit) {
  const { say } = app;
  const site = siteNamed(app, edit.site);
  const place = `${site.layer === null ? "" : `${site.group.split(".")[0][0]}${site.layer} `}${site.path.split(".").pop()}`;
  const where = "head" in edit ? `${place} · ${edit.head}` : place;
  const label = (/** @type {string | null} */ side, /** @type {number} */ n, /** @type {number} */ i) => ticksOf(app.about, side, n)[i]?.label ?? String(i);
  const pair = "query" in edit ? `${label(askingSide(site), site.n_query, edit.query)} → ${label(site.answers, site.n_key, edit.key)}` : "";
  const text = {
    temperature: () => say("editTemperature", { x: short(/** @type {any} */ (edit).value, 2) }),
    unscaled: () => say("editUnscaled"),
    ablate: () => say("editOff"),
    forbid: () => say("editForbid", { pair }),
    allow: () => say("editAllow", { pair }),
    score: () => say("editScore", { pair, x: short(/** @type {any} */ (edit).value) }),
  }[edit.kind]();
  return [el("span.small", {}, where), " ", text];
}
