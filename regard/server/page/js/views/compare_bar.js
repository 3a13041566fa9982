// The bar of a comparison: what the open head is compared with.

import { sentencePairs } from "../compare_messages.js";
import { imageFor, readComparison, writeComparison } from "../compare_spec.js";
import { el, fill, rememberFocus } from "../dom.js";
import { otherHead } from "../selection.js";
import { runFirst } from "./compare_patch.js";
import { toggleDrawingPad } from "./drawing_pad.js";
import { groupTitle } from "./overview.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../compare_spec.js").Comparison} Comparison
 * @typedef {import("../source.js").OtherRuns} OtherRuns
 */

const NAMES = /** @type {const} */ ({ text: "compareKind_text", image: "compareKind_image", model: "compareKind_model", head: "compareKind_head", run: "compareKind_run", edited: "compareKind_edited" });

/**
 * The button that starts and ends a comparison.
 * @param {App} app
 */
export function compareButton(app) {
  const { t, store } = app;
  const toggle = async () => {
    if (store.state.compare) return store.set({ compare: "" });
    const choices = requestOf(app).image ? await app.source.choices?.().catch(() => undefined) : undefined;
    return store.set({ compare: writeComparison(firstComparison(app, choices)), ...(store.state.pane ? { pane: "pattern" } : {}) });
  };
  return el("button.compare-button", { title: t("compareHelp"), "aria-pressed": "false", onclick: toggle }, t("compare"));
}

/**
 * Return what to compare with first: the other sentence of a pair, the edited run, another image or another head.
 * @param {App} app
 * @param {OtherRuns} [choices]
 * @returns {Comparison}
 */
function firstComparison(app, choices) {
  const { text, image, model } = requestOf(app);
  const pair = sentencePairs(model).find((one) => one.includes(text));
  if (pair) return { kind: "text", text: pair.find((one) => one !== text) };
  if (app.store.state.edits.length) return { kind: "edited" };
  if (image && choices && imagesOf(app, choices).length) return { kind: "image", image: nextImage(app, choices) };
  return text && app.source.model ? { kind: "text", text } : nextHead(app);
}

/**
 * @param {App} app
 * @returns {Comparison}
 */
function nextHead(app) {
  const { site, head } = { ...app.store.state, ...(otherHead(app, 1) ?? otherHead(app, -1)) };
  return { kind: "head", site, head };
}

/**
 * Return the example images of the open model: their names in a request, and for readers.
 * @param {App} app
 * @param {OtherRuns} choices
 * @returns {[string, string][]}
 */
function imagesOf(app, { models }) {
  const examples = models.find(({ name }) => name === requestOf(app).model)?.examples ?? [];
  return examples.flatMap(({ image, name }) => (image ? [/** @type {[string, string]} */ ([image, name ?? image])] : []));
}

/**
 * Return the example after the open image, or the first.
 * @param {App} app
 * @param {OtherRuns} choices
 * @returns {string}
 */
function nextImage(app, choices) {
  const { image, model } = requestOf(app);
  const known = imagesOf(app, choices).map(([name]) => name);
  return known[(known.indexOf(imageFor(image, model, model) ?? "") + 1) % known.length] ?? image;
}

/**
 * Compare with an image of the reader; a file that is not an image is reported on the page.
 * @param {App} app
 * @param {Blob | null | undefined} file
 */
export async function compareWithImage(app, file) {
  const { source } = app;
  if (!file || !source.upload) return;
  try {
    const spec = /** @type {Comparison} */ ({ kind: "image", image: await source.upload(file) });
    await source.other?.(spec); // the last one stays until this one can be drawn
    if (source === app.source) set(app, spec);
  } catch (error) {
    app.root.dispatchEvent(new CustomEvent("regard-error", { detail: error }));
  }
}

/** @param {App} app */
function requestOf(app) {
  return /** @type {any} */ (app.about).asked ?? {};
}

/**
 * @param {App} app
 */
export function compareBar(app) {
  const { t, store } = app;
  const element = el("div.compare-bar.tools", { role: "group", "aria-label": t("compareBar") });
  /** @type {OtherRuns} */
  let choices = { models: [], runs: [] };
  let shown = "";
  let asked = /** @type {App["source"] | null} */ (null);
  const paint = () => {
    const spec = readComparison(store.state.compare);
    element.hidden = !spec;
    const now = spec ? JSON.stringify([spec, requestOf(app), choices.models.length, choices.runs.length]) : "";
    if (now === shown || !spec) return;
    shown = now;
    const refocus = rememberFocus(element);
    fill(element, kindChoice(app, spec, choices), fieldsOf(app, spec, choices), el("button.icon.compare-close", { title: t("compareClose"), "aria-label": t("compareClose"), onclick: () => store.set({ compare: "" }) }, "×"));
    refocus();
  };
  return {
    element,
    update: () => {
      paint();
      if (element.hidden || asked === app.source) return;
      asked = app.source;
      app.source.choices?.().then((found) => {
        choices = found;
        paint();
      }, () => undefined); // no server: the other choices stay
    },
  };
}

/**
 * @param {App} app
 * @param {Comparison} spec
 */
function set({ store }, spec) {
  const { difference } = readComparison(store.state.compare) ?? {};
  store.set({ compare: writeComparison({ ...spec, difference }) });
}

/**
 * Choose between another sentence, model, head, checkpoint and the edited run.
 * @param {App} app
 * @param {Comparison} spec
 * @param {OtherRuns} choices
 */
function kindChoice(app, spec, choices) {
  const { t } = app;
  const first = firstOfKind(app, choices);
  const known = /** @type {Comparison["kind"][]} */ (Object.keys(first)).filter((kind) => first[kind] || kind === spec.kind);
  const select = el("select.compare-kind", { "aria-label": t("compareWith"), onchange: () => set(app, first[/** @type {Comparison["kind"]} */ (select.value)] ?? spec) },
    known.map((kind) => el("option", { value: kind }, t(NAMES[kind]))));
  select.value = spec.kind;
  return select;
}

/**
 * Return the first comparison of each kind; null if there is none.
 * @param {App} app
 * @param {OtherRuns} choices
 * @returns {Record<Comparison["kind"], Comparison | null>}
 */
function firstOfKind(app, choices) {
  const { text, image } = requestOf(app);
  const model = otherModels(app, choices)[0];
  const [run] = ownRuns(app, choices);
  const step = run?.checkpoints[0].step;
  return {
    text: text && app.source.model ? { kind: "text", text: partnerOf(app, text) } : null,
    image: image && app.source.model ? { kind: "image", image: nextImage(app, choices) } : null,
    model: model ? { kind: "model", model } : null,
    head: app.sites.length > 1 || app.open.site.n_heads > 1 ? nextHead(app) : null,
    run: run ? { kind: "run", run: run.name, step, item: shownText(run.texts.length) } : null,
    edited: app.source.model || !app.about.live ? { kind: "edited" } : null,
  };
}

/**
 * Return the runs with checkpoints of the open model, or the open run.
 * @param {App} app
 * @param {OtherRuns} choices
 */
function ownRuns(app, { runs }) {
  const { model } = requestOf(app);
  const replayed = new URLSearchParams(location.search).get("run");
  return runs.filter((one) => one.checkpoints.length && (model ? one.models.includes(model) : one.name === replayed));
}

/**
 * Return the text that a training replay shows, or the first.
 * @param {number} count
 */
function shownText(count) {
  const given = Number(new URLSearchParams(location.search).get("text"));
  return Number.isInteger(given) && given < count ? given : 0;
}

/**
 * @param {App} app
 * @param {string} text
 */
function partnerOf(app, text) {
  const pair = sentencePairs(requestOf(app).model).find((one) => one.includes(text));
  return pair?.find((one) => one !== text) ?? text;
}

/**
 * Return the other models that read the same input; those whose names begin alike first, as en-ko for en-de.
 * @param {App} app
 * @param {OtherRuns} choices
 */
function otherModels(app, { models }) {
  const reads = app.about.image ? "image" : "text";
  const { model } = requestOf(app);
  if (!model) return [];
  const alike = (/** @type {string} */ name) => {
    const differs = Array.from(name).findIndex((letter, i) => letter !== model[i]);
    return differs < 0 ? name.length : differs;
  };
  return models.filter((one) => one.reads === reads && one.name !== model).map((one) => one.name).sort((a, b) => alike(b) - alike(a));
}

/**
 * @param {App} app
 * @param {Comparison} spec
 * @param {OtherRuns} choices
 */
function fieldsOf(app, spec, choices) {
  const { t } = app;
  switch (spec.kind) {
    case "text":
      return [textField(app, spec), pairChoice(app)];
    case "image":
      return imageFields(app, spec, choices);
    case "model":
      return [choice(t("compareKind_model"), otherModels(app, choices).map((name) => [name, name]), spec.model ?? "", (model) => set(app, { ...spec, model }))];
    case "head":
      return [headChoice(app, spec)];
    case "run":
      return runChoice(app, spec, choices);
    default:
      return [];
  }
}

/**
 * @param {App} app
 * @param {Comparison} spec
 */
function textField(app, spec) {
  const field = el("input.compare-text", { type: "text", "aria-label": app.t("compareText"), value: spec.text ?? "", maxlength: 2000, onchange: () => field.value.trim() && set(app, { ...spec, text: field.value.trim() }) });
  return field;
}

/**
 * Choose an example, a file, or draw.
 * @param {App} app
 * @param {Comparison} spec
 * @param {OtherRuns} choices
 */
function imageFields(app, spec, choices) {
  const { t } = app;
  const known = imagesOf(app, choices);
  const own = spec.image && known.every(([image]) => image !== spec.image) ? [[spec.image, t("compareOwnImage")]] : [];
  const field = el("input.visually-hidden", { type: "file", accept: "image/*", "aria-label": t("compareImage"), onchange: () => compareWithImage(app, field.files[0]) });
  const draw = () => toggleDrawingPad(app, (drawn) => compareWithImage(app, drawn), "compareDrawHere");
  return [
    choice(t("compareImage"), [...known, ...own], spec.image ?? "", (image) => set(app, { ...spec, image })),
    el("label.drop", { title: t("chooseImage") }, t("compareFile"), field),
    el("button.patch-go.draw-second", { onclick: draw }, t("draw")),
  ];
}

/**
 * Pairs of sentences one word apart; a pair sets both sides.
 * @param {App} app
 */
function pairChoice(app) {
  const { t, store } = app;
  const { text, model } = requestOf(app);
  const pairs = sentencePairs(model);
  const select = el("select.compare-pairs", { "aria-label": t("comparePairs"), title: t("comparePairs"), onchange: () => {
    const pair = pairs[Number(select.value)];
    if (!pair) return;
    if (pair.includes(text)) set(app, { kind: "text", text: pair.find((one) => one !== text) });
    else runFirst(app, { text: pair[0] }, () => store.set({ compare: writeComparison({ kind: "text", text: pair[1] }) }));
  } }, el("option", { value: "" }, t("comparePairs")), pairs.map((pair, i) => el("option", { value: i, lang: "en" }, pairName(pair))));
  select.value = String(pairs.findIndex((one) => one.includes(text)));
  if (!select.value) select.value = "";
  return select;
}

/**
 * Return a pair as one text: "The dog / cat is sleeping in the garden."
 * @param {string[]} pair
 */
function pairName([first, second]) {
  const [a, b] = [first.split(" "), second.split(" ")];
  return a.map((word, i) => (word === b[i] ? word : `${word.replace(/\.$/, "")} / ${b[i]}`)).join(" ");
}

/**
 * @param {App} app
 * @param {Comparison} spec
 */
function headChoice(app, spec) {
  const { t, sites } = app;
  const select = el("select.compare-head-choice", { "aria-label": t("compareKind_head"), onchange: () => {
    const [site, head] = select.value.split(":");
    set(app, { ...spec, site, head: Number(head) });
  } }, sites.map((site) => el("optgroup", { label: site.layer === null ? groupTitle(app, site.group) : `${groupTitle(app, site.group)} · ${t("layerName", { layer: site.layer })}` },
    Array.from({ length: site.n_heads }, (_, head) => el("option", { value: `${site.path}:${head}` }, site.layer === null ? t("headName", { head }) : t("layerHead", { layer: site.layer, head }))))));
  select.value = `${spec.site}:${spec.head}`;
  return select;
}

/**
 * @param {App} app
 * @param {Comparison} spec
 * @param {OtherRuns} choices
 */
function runChoice(app, spec, choices) {
  const { t } = app;
  const run = choices.runs.find((one) => one.name === spec.run);
  const runs = [...new Set([...ownRuns(app, choices), ...(run ? [run] : [])])];
  const pick = (/** @type {string} */ name) => {
    const other = runs.find((one) => one.name === name);
    if (other) set(app, { kind: "run", run: name, step: other.checkpoints[0]?.step ?? 0, item: 0 });
  };
  const names = /** @type {[string, string][]} */ (runs.map((one) => [one.name, one.name]));
  const steps = /** @type {[string, string][]} */ ((run?.checkpoints ?? []).map(({ step }) => [String(step), t("compareStep", { step })]));
  const texts = /** @type {[string, string][]} */ ((run?.texts ?? []).map((text, i) => [String(i), text.split("\t")[0]]));
  return [
    choice(t("compareKind_run"), names, spec.run ?? "", pick),
    choice(t("compareKind_run"), steps, String(spec.step), (step) => set(app, { ...spec, step: Number(step) })),
    texts.length > 1 ? choice(t(app.about.image ? "compareImage" : "compareText"), texts, String(spec.item ?? 0), (item) => set(app, { ...spec, item: Number(item) })) : null,
  ];
}

/**
 * @param {string} label
 * @param {string[][]} options value and text
 * @param {string} value
 * @param {(value: string) => void} pick
 */
function choice(label, options, value, pick) {
  const select = el("select", { "aria-label": label, onchange: () => pick(select.value) }, options.map(([name, text]) => el("option", { value: name }, text)));
  select.value = value;
  return select;
}
