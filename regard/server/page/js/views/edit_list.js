// The list of edits, with undo, reset, a name and a link.

import { el, fill, rememberFocus, isPage } from "../dom.js";
import { short } from "../format.js";
import { copyText } from "../save.js";
import { findSite } from "../selection.js";
import { hasAddress } from "../state.js";
import { querySide, labelOf, ticksOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../edits.js").Edit} Edit
 */

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function editList(app) {
  const element = el("section.edit-list", { "aria-label": app.t("edits") });
  let shown = "[]";
  return {
    element,
    update: () => {
      const { edits, name } = app.store.state;
      element.hidden = edits.length === 0;
      const now = JSON.stringify([edits, name]);
      const refocus = rememberFocus(element);
      if (now !== shown) fill(element, edits.length ? renderBar(app, edits) : "");
      refocus();
      shown = now;
    },
  };
}

/**
 * @param {App} app
 * @param {Edit[]} edits
 */
function renderBar(app, edits) {
  const { t, store } = app;
  const chips = edits.map((edit, i) =>
    el("li", {}, el("button.chip", { title: t("showEdit"), onclick: () => store.set(placeOf(app, edit)) }, describe(app, edit)),
      el("button.icon", { title: t("removeEdit"), "aria-label": t("removeEdit"), onclick: () => store.set({ edits: edits.filter((_, n) => n !== i) }) }, "×")));
  return [
    el("h2", {}, `${t("edits")} (${edits.length})`),
    el("ul", {}, chips),
    el("span.gap"),
    nameField(app),
    el("button.quiet", { onclick: () => store.undo() }, "↶ ", t("undo")),
    el("button.quiet", { onclick: () => store.set({ edits: [] }) }, t("reset")),
    hasAddress() && isPage(app.root) ? el("button.quiet", { onclick: () => copyText(app, location.href) }, t("copyLink")) : "",
  ];
}

/**
 * A name for the edits, which is part of the link.
 * @param {App} app
 */
function nameField({ t, store }) {
  const field = el("input.name", { type: "text", placeholder: t("nameEdits"), "aria-label": t("nameEdits"), value: store.state.name, maxlength: 60, onchange: () => store.set({ name: field.value.trim() }) });
  return field;
}

/**
 * Return the selection that shows an edit.
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
  const { t } = app;
  if (edit.kind === "token") {
    const old = labelOf(app.about.tokens[edit.side]?.[edit.position] ?? "");
    return [el("span.small", {}, `${edit.position} `), t("editToken", { old, token: edit.token })];
  }
  const site = findSite(app, edit.site);
  const place = `${site.layer === null ? "" : `${site.group.split(".")[0][0]}${site.layer} `}${site.path.split(".").pop()}`;
  const where = "head" in edit ? `${place} · ${edit.head}` : place;
  const label = (/** @type {string | null} */ side, /** @type {number} */ n, /** @type {number} */ i) => ticksOf(app.about, side, n)[i]?.label ?? String(i);
  const pair = "query" in edit ? `${label(querySide(site), site.n_query, edit.query)} → ${label(site.answers, site.n_key, edit.key)}` : "";
  const text = {
    temperature: () => t("editTemperature", { x: short(/** @type {any} */ (edit).value, 2) }),
    unscaled: () => t("editUnscaled"),
    ablate: () => t("editOff"),
    mean: () => t("editMean"),
    forbid: () => t("editForbid", { pair }),
    allow: () => t("editAllow", { pair }),
    score: () => t("editScore", { pair, x: short(/** @type {any} */ (edit).value) }),
    weight: () => t("editWeight", { pair, x: short(/** @type {any} */ (edit).value) }),
  }[edit.kind]();
  return [el("span.small", {}, where), " ", text];
}
