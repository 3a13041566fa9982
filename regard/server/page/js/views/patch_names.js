// Names of patches: values that were carried over from another run.

import { querySide, ticksOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Site} Site
 * @typedef {Extract<import("../edits.js").Edit, { kind: "patch" }>} Patch
 */

/** Longer texts are shown by their beginning and end. */
const MAX_TEXT = 34;

/**
 * Describe a patch in plain words.
 * @param {App} app
 * @param {Pick<Site, "group" | "asks" | "writes" | "n_query">} site
 * @param {Patch} edit
 */
export function describePatch({ t, about }, site, { path, source, position, query }) {
  const name = path.slice(path.lastIndexOf(".") + 1);
  const at = position ?? query;
  const token = at === undefined ? "" : (ticksOf(about, querySide(site), site.n_query)[at]?.label ?? String(at));
  const text = source.text ? clipped(source.text) : t("patchImage");
  if (name === "weights") return t("editPatchRow", { token, text });
  if (name === "residual") return t("editPatchResidual", { token, text });
  return at === undefined ? t("editPatchHead", { text }) : t("editPatchHeadAt", { token, text });
}

/**
 * Return the selection that shows a patch.
 * @param {Patch} edit
 */
export function patchedPlace({ path, head, position, query }) {
  const row = position ?? query;
  return { site: path.slice(0, path.lastIndexOf(".")), ...(head === undefined ? {} : { head }), ...(row === undefined ? {} : { query: row }) };
}

/**
 * Shorten a text in the middle: sentences of a pair often differ at the end.
 * @param {string} text
 */
function clipped(text) {
  return text.length > MAX_TEXT ? `${text.slice(0, 10).trimEnd()} … ${text.slice(-20).trimStart()}` : text;
}
