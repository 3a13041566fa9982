// Controls that carry a value of one side into the other: a patch in the list of edits.

import { withEdit } from "../edits.js";
import { el } from "../dom.js";
import { EFFICIENT_FORMS } from "../head.js";
import { writeComparison } from "../compare_spec.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../compare_sides.js").Sides} Sides
 * @typedef {Extract<import("../edits.js").Edit, { kind: "patch" }>} Patch
 * @typedef {{ name: "head" | "residual" | "row", text: string, place: Omit<Patch, "kind" | "source">, problem: string }} Choice
 */

/** The chosen kind of value; it stays while the page is open. */
let chosen = /** @type {Choice["name"]} */ ("head");

/**
 * Return the controls; null if the other side is not a run of a model on an input.
 * @param {App} app
 * @param {Sides} sides
 */
export function patchControls(app, sides) {
  const { t } = app;
  const { kind } = sides.spec;
  const other = sides.second.about.asked;
  if (!app.source.model || !other?.model || !["text", "image", "model"].includes(kind)) return null;
  const choose = el("select.patch-what", { "aria-label": t("patch"), onchange: () => {
    chosen = /** @type {any} */ (choose.value);
    show();
  } });
  const current = () => choicesOf(app, sides).find((one) => one.name === chosen) ?? choicesOf(app, sides)[0];
  const button = (/** @type {string} */ sign, /** @type {"patchIntoFirst" | "patchIntoSecond"} */ word, /** @type {(choice: Choice) => void} */ act) =>
    el("button.patch-go", { "aria-label": t(word), onclick: () => current().problem || act(current()) }, sign);
  const left = button("1 ← 2", "patchIntoFirst", ({ place }) => intoFirst(app, place, sourceOf(other, sides.first.about.asked)));
  const right = button("1 → 2", "patchIntoSecond", ({ place }) => intoSecond(app, sides, place));
  const show = () => {
    const all = choicesOf(app, sides);
    choose.replaceChildren(...all.map((one) => el("option", { value: one.name }, one.text)));
    choose.value = current().name;
    for (const [one, word] of /** @type {const} */ ([[left, "patchIntoFirst"], [right, "patchIntoSecond"]])) {
      one.toggleAttribute("disabled", current().problem !== "");
      one.title = current().problem || t(word);
    }
  };
  show();
  return { element: el("span.patch", { role: "group", "aria-label": t("patch"), title: t("patchHelp") }, el("span", {}, t("patch")), choose, left, right), update: show };
}

/**
 * Return the values that can be carried over at the selected query.
 * @param {App} app
 * @param {Sides} sides
 * @returns {Choice[]}
 */
function choicesOf({ t, store, open }, { first, second, moved }) {
  const { site, head } = first;
  const position = store.state.query;
  const token = open.rows[position]?.label ?? position;
  const fits = !moved && site.path === second.site.path && site.n_heads === second.site.n_heads && site.d_v === second.site.d_v;
  const size = fits ? "" : t("patchOtherSize");
  const reached = size || (position < second.site.n_query ? "" : t("patchNoPosition"));
  // a decoder writes answers of other lengths, so that only single positions are safe
  const whole = site.path.startsWith("encoder.") && site.n_query === second.site.n_query;
  const layer = site.layer ?? 0;
  /** @type {(Choice | null)[]} */
  const all = [
    whole
      ? { name: "head", text: t("patchHead", { head }), place: { path: `${site.path}.context`, head }, problem: size }
      : { name: "head", text: t("patchHeadAt", { head, token }), place: { path: `${site.path}.context`, head, position }, problem: reached },
    site.space ? { name: "residual", text: t("patchResidual", { token, layer }), place: { path: `${site.path}.residual`, position }, problem: reached } : null,
    EFFICIENT_FORMS.has(site.similarity) ? null : {
      name: "row", text: t("patchRow", { token }), place: { path: `${site.path}.weights`, head, query: position },
      problem: reached || (site.n_key === second.site.n_key ? "" : t("patchOtherLength")),
    },
  ];
  return all.filter((one) => one !== null);
}

/**
 * Return a request as the source of a patch: only what differs from the run that is patched.
 * @param {any} asked
 * @param {any} here the request of the patched run
 */
function sourceOf({ edits: _, model, beam, ...input }, here) {
  return { ...(model === here?.model ? {} : { model }), ...input, ...(beam === undefined || beam === 4 ? {} : { beam }) };
}

/**
 * @param {App} app
 * @param {Choice["place"]} place
 * @param {Record<string, any>} source
 */
function intoFirst({ store }, place, source) {
  store.set({ edits: withEdit(store.state.edits, { kind: "patch", ...place, source }) });
}

/**
 * Edits change the first side: exchange both sides, then patch.
 * @param {App} app
 * @param {Sides} sides
 * @param {Choice["place"]} place
 */
function intoSecond(app, { first, second, spec }, place) {
  const [here, there] = [first.about.asked, second.about.asked];
  const model = here.model === there.model ? undefined : here.model;
  const compare = writeComparison({ ...spec, model, text: here.text, image: spec.kind === "image" ? here.image : undefined });
  const { query, key } = app.store.state;
  const patch = /** @type {Patch} */ ({ kind: "patch", ...place, source: sourceOf(here, there) });
  const { site, head } = first;
  runFirst(app, { model: there.model, text: there.text, image: there.image, target: undefined, part: undefined, edits: undefined }, () => {
    app.store.set({ site: site.path, head, query, key, pinned: true, compare, edits: [] });
    app.store.set({ edits: [patch] });
  });
}

/**
 * Run another input as the first side, then change the state.
 * @param {App} app
 * @param {Record<string, any>} request
 * @param {() => void} then
 */
export function runFirst(app, request, then) {
  const old = app.source;
  const finish = () => {
    if (app.source === old) return; // still running; a later run takes its place
    app.root.removeEventListener("regard-status", finish);
    const { asked } = /** @type {any} */ (app.about);
    if (asked?.text === request.text && asked?.image === request.image) then(); // else this run failed, and the reader went on
  };
  app.root.addEventListener("regard-status", finish);
  app.root.dispatchEvent(new CustomEvent("regard-request", { detail: request }));
}
