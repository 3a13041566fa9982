// The reader's edits: each can be taken back, all can be shared.

import { el, fill, focusOf, isPage } from "../dom.js";
import { short } from "../format.js";
import { copyText } from "../save.js";
import { siteNamed } from "../selection.js";
import { hasAddress } from "../state.js";
import { askingSide, labelOf, ticksOf } from "../tokens.js";

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
  let shown = "[]";
  return {
    element,
    update: () => {
      const { edits, name } = app.store.state;
      element.hidden = edits.length === 0;
      const now = JSON.stringify([edits, name]);
      const refocus = focusOf(element);
      if (now !== shown) fill(element, edits.length ? bar(app, edits) : "");
      refocus();
      shown = now;
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
    el("li", {}, el("button.chip", { title: say("goThere"), onclick: () => store.set(placeOf(app, edit)) }, describe(app, edit)),
      el("button.icon", { title: say("takeBack"), "aria-label": say("takeBack"), onclick: () => store.set({ edits: edits.filter((_, n) => n !== i) }) }, "×")));
  return [
    el("h2", {}, `${say("edits")} (${edits.length})`),
    el("ul", {}, chips),
    el("span.gap"),
    nameField(app),
    el("button.quiet", { onclick: () => store.undo() }, "↶ ", say("undo")),
    el("button.quiet", { onclick: () => store.set({ edits: [] }) }, say("reset")),
    hasAddress() && isPage(app.root) ? el("button.quiet", { onclick: () => copyText(app, location.href) }, say("copyLink")) : "",
  ];
}

/**
 * A name for all edits together: links carry it.
 * @param {App} app
 */
function nameField({ say, store }) {
  const field = el("input.name", { type: "text", placeholder: say("nameEdits"), "aria-label": say("nameEdits"), value: store.state.name, maxlength: 60, onchange: () => store.set({ name: field.value.trim() }) });
  return field;
}

/**
 * Where an edit is to be seen.
 * @param {App} app
 * @param {Edit} edit
 */
function placeOf({ sites, open }, edit) {
  if (edit.kind === "token") {
    const site = open.site.answers === edit.side ? open.site : sites.find((one) => one.answers === edit.side);
    return site ? { site: site.path, key: edit.position } : {};
  }
  const { kind: _, value: __, ...place } = /** @type {any} */ (edit);
  return place;
}

/**
 * @param {App} app
 * @param {Edit} edit
 */
function describe(app, edit) {
  const { say } = app;
  if (edit.kind === "token") {
    const old = labelOf(app.about.tokens[edit.side]?.[edit.position] ?? "");
    return [el("span.small", {}, `${edit.position} `), say("editToken", { old, token: edit.token })];
  }
  const site = siteNamed(app, edit.site);
  const place = `${site.layer === null ? "" : `${site.group.split(".")[0][0]}${site.layer} `}${site.path.split(".").pop()}`;
  const where = "head" in edit ? `${place} · ${edit.head}` : place;
  const label = (/** @type {string | null} */ side, /** @type {number} */ n, /** @type {number} */ i) => ticksOf(app.about, side, n)[i]?.label ?? String(i);
  const pair = "query" in edit ? `${label(askingSide(site), site.n_query, edit.query)} → ${label(site.answers, site.n_key, edit.key)}` : "";
  const text = {
    temperature: () => say("editTemperature", { x: short(/** @type {any} */ (edit).value, 2) }),
    unscaled: () => say("editUnscaled"),
    ablate: () => say("editOff"),
    mean: () => say("editMean"),
    forbid: () => say("editForbid", { pair }),
    allow: () => say("editAllow", { pair }),
    score: () => say("editScore", { pair, x: short(/** @type {any} */ (edit).value) }),
    weight: () => say("editWeight", { pair, x: short(/** @type {any} */ (edit).value) }),
  }[edit.kind]();
  return [el("span.small", {}, where), " ", text];
}
