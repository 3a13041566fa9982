// Figures for papers and slides: all kinds that fit the open head, drawn by the server.

import { el, fill } from "../dom.js";
import { readComparison } from "../compare_spec.js";
import { request, requestJson } from "../http.js";
import { check, radioGroup } from "../radio_group.js";
import { download, showNotice } from "../save.js";

/** @typedef {import("../app.js").App} App */

/** The kinds in the order of the list. */
/** @type {[import("../messages.js").MessageKey, string[]][]} */
const GROUPS = [
  ["figuresHead", ["pattern", "lines", "bars", "graph", "stages", "steps", "additive", "temperature", "compare"]],
  ["figuresLayer", ["heads", "layer", "split", "alignment", "space", "image", "reference"]],
  ["figuresAnswer", ["decode", "lens", "attribution"]],
  ["figuresModel", ["architecture"]],
];
const FORMATS = /** @type {const} */ (["pdf", "svg", "png"]);

/**
 * Return the kind of figure that shows most of what a view shows.
 * @param {string} view
 * @param {string[]} kinds that fit
 */
function kindOf(view, kinds) {
  return kinds.includes(view) ? view : "pattern";
}

/**
 * Return the trace and the head of the figure, as parameters; the trace is that after the edits.
 * @param {App} app
 */
export async function figurePlace({ source, store }) {
  const { site, head, query, language, edits, compare } = store.state;
  const effect = edits.length ? /** @type {any} */ (await source.model?.effect(edits)) : null;
  const { id } = /** @type {any} */ (effect?.source ?? source).described;
  const given = new URLSearchParams({ site, head: String(head), query: String(query), language });
  const spec = readComparison(compare);
  const other = spec && spec.kind !== "edited" ? /** @type {any} */ (await source.other?.(spec)) : spec && source;
  if (spec && other) {
    given.set("other", other.described.id);
    given.set("other_site", spec.site ?? site);
    given.set("other_head", String(spec.head ?? head));
  }
  return { id, given };
}

/** @param {App} app */
export async function openFigures(app) {
  const { t, store } = app;
  const { id, given } = await app.whileBusy(figurePlace(app));
  const { kinds } = await app.whileBusy(requestJson(`/api/trace/${id}/figures?${given}`));
  const named = (/** @type {string} */ kind) => el("option", { value: kind }, t(/** @type {any} */ (`figure_${kind}`)));
  const groups = GROUPS.map(([label, names]) => {
    const found = names.filter((one) => kinds.includes(one));
    return found.length ? el("optgroup", { label: t(label) }, found.map(named)) : "";
  });
  let format = /** @type {string} */ (FORMATS[0]);
  const path = (/** @type {string} */ as) => `/api/trace/${id}/figure?${given}&kind=${kind.value}&format=${as}`;
  const preview = el("img", { alt: "" });
  const show = () => {
    preview.src = path("svg");
    preview.alt = kind.selectedOptions[0]?.textContent ?? "";
  };
  const kind = el("select", { "aria-label": t("figureKind"), onchange: show }, groups);
  kind.value = kindOf(store.state.page === "explore" ? store.state.view : "layer", kinds);
  const formats = radioGroup(el("div.choice", { role: "radiogroup", "aria-label": t("figureFormat") }, FORMATS.map((one) => el("button", { role: "radio", "data-format": one, onclick: () => choose(one) }, one.toUpperCase()))));
  const choose = (/** @type {string} */ one) => {
    format = one;
    check(/** @type {NodeListOf<HTMLElement>} */ (formats.querySelectorAll("button")), (button) => button.dataset.format === one);
  };
  const save = async () => {
    try {
      download(await (await app.whileBusy(request(path(format)))).blob(), `regard-${kind.value}.${format}`);
    } catch (error) {
      showNotice(app, t.error(error));
    }
  };
  const dialog = el("dialog.figures", { "aria-label": t("figures"), onclose: () => dialog.remove(), onclick: (/** @type {Event} */ event) => event.target === dialog && dialog.close() });
  fill(dialog, el("h2", {}, t("figures")), el("div.tools-line", {}, kind, formats, el("button.primary", { "data-figure": "save", onclick: save }, t("figureSave"))),
    el("div.preview", {}, preview), el("form", { method: "dialog" }, el("button", {}, t("close"))));
  choose(format);
  show();
  app.root.append(dialog);
  dialog.showModal();
}
