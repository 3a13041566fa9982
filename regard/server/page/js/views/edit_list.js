// The list of edits, with undo, reset, a name and a link.

import { el, fill, rememberFocus, isPage } from "../dom.js";
import { editedSite } from "../edits.js";
import { short } from "../format.js";
import { whyResting } from "../kept_choices.js";
import { copyText } from "../save.js";
import { hasAddress } from "../state.js";
import { querySide, labelOf, ticksOf } from "../tokens.js";
import { groupTitle } from "./overview.js";
import { describePatch, patchedPlace } from "./patch_names.js";

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
      const { edits, resting, name } = app.store.state;
      element.hidden = edits.length + resting.length === 0;
      const now = JSON.stringify([edits, resting, name, app.about.tokens]);
      const refocus = rememberFocus(element);
      if (now !== shown) fill(element, element.hidden ? "" : renderBar(app));
      refocus();
      shown = now;
    },
  };
}

/** @param {App} app */
function renderBar(app) {
  const { t, store } = app;
  const { edits, resting } = store.state;
  const remove = (/** @type {"edits" | "resting"} */ list, /** @type {Edit} */ edit) =>
    el("button.icon", { title: t("removeEdit"), "aria-label": t("removeEdit"), onclick: () => store.set({ [list]: store.state[list].filter((one) => one !== edit) }) }, "×");
  const chips = edits.map((edit) =>
    el("li", {}, el("button.chip", { title: t("showEdit"), onclick: () => store.set(placeOf(app, edit)) }, describe(app, edit)), remove("edits", edit)));
  const gray = resting.map((edit) => el("li.resting", { title: reasonOf(app, edit) }, el("span", {}, describe(app, edit), " · ", el("span.reason", {}, reasonOf(app, edit))), remove("resting", edit)));
  return [
    el("h2", {}, `${t("edits")} (${edits.length})`),
    el("ul", {}, chips, gray),
    el("button.quiet.undo", { "aria-label": t("undo"), onclick: () => store.undo() }, "↶ ", el("span.wide", {}, t("undo"))),
    el("button.quiet", { onclick: () => store.set({ edits: [], resting: [] }) }, t("reset")),
    el("details.menu.up", {}, el("summary.icon", { title: t("nameEdits"), "aria-label": t("nameEdits") }, "⋯"),
      el("div.items", {}, nameField(app), hasAddress() && isPage(app.root) ? el("button.quiet", { onclick: () => copyText(app, location.href) }, t("copyLink")) : "")),
  ];
}

/**
 * Return why an edit does not apply to this text.
 * @param {App} app
 * @param {Edit} edit
 */
function reasonOf(app, edit) {
  const why = whyResting(app, edit);
  if (!why) return "";
  if ("error" in why) return app.t.error(why.error);
  return app.t(why.key, why.key === "restingSite" ? { site: nameOf(app, siteOf(app, String(why.values.site))) } : why.values);
}

/**
 * Return what a reader calls a site: "layer 2 · cross-attention".
 * @param {App} app
 * @param {Pick<import("../source.js").Site, "group" | "layer">} site
 */
function nameOf(app, { group, layer }) {
  return `${layer === null ? "" : `${app.t("layerName", { layer })} · `}${groupTitle(app, group)}`;
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
  if (edit.kind === "patch") return patchedPlace(edit);
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
    const old = app.about.tokens[edit.side]?.[edit.position];
    return [el("span.small", {}, `${edit.position} `), old === undefined ? `→ ${edit.token}` : t("editToken", { old: labelOf(old), token: edit.token })];
  }
  const site = siteOf(app, editedSite(edit));
  const place = `${site.layer === null ? "" : `${site.group.split(".")[0][0]}${site.layer} `}${site.path.split(".").pop()}`;
  const where = "head" in edit ? `${place} · ${edit.head}` : place;
  if (edit.kind === "patch") return [el("span.small", {}, where), " ", describePatch(app, site, edit)];
  const label = (/** @type {string | null} */ side, /** @type {number} */ n, /** @type {number} */ i) => (n ? ticksOf(app.about, side, n)[i]?.label : undefined) ?? String(i);
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

/**
 * Return a site, or what its path says about one that another model has.
 * @param {App} app
 * @param {string} path
 * @returns {Pick<import("../source.js").Site, "path" | "group" | "layer" | "n_query" | "n_key" | "asks" | "answers" | "writes">}
 */
function siteOf({ sites }, path) {
  const layer = /\.(\d+)\./.exec(path)?.[1];
  const elsewhere = { path, group: path.replace(/\.\d+\./, ".*."), layer: layer ? Number(layer) : null, n_query: 0, n_key: 0, asks: null, answers: null, writes: null };
  return sites.find((site) => site.path === path) ?? elsewhere;
}
