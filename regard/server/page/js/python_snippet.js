// The Python program that computes what the page shows.

import { editsToJson } from "./edits.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./edits.js").Edit} Edit
 */

/** Images with more pixels than this are not written into the program. */
const MAX_PIXELS = 64 * 64;

/**
 * Return a Python program that repeats the run with its edits and prints what the page shows.
 * @param {App} app
 * @returns {string}
 */
export function pythonSnippet(app) {
  const { asked, answer, output } = /** @type {any} */ (app.source).described;
  const { site, head, query, view, edits } = app.store.state;
  const inner = edits.filter((edit) => edit.kind !== "token" && edit.kind !== "patch");
  const image = app.about.image;
  const lines = ["import regard"];
  if (image) lines.unshift(...(fits(image) ? ["from base64 import b64decode", ""] : []), "from PIL import Image", "");
  if (inner.length) lines.push("from regard.trace.edits import edit_from_dict");
  lines.push("", `model = regard.load(${quote(asked.model)})`);
  lines.push(...(image ? imageLines(image) : sourceLines(app, output?.part_source || asked.text || "", edits)));
  const writes = answer?.kind === "translation";
  if (writes) lines.push(...targetLines(answer, edits));
  if (inner.length) lines.push("edits = [", ...editsToJson(inner).map((edit) => `    ${literal(edit)},`), "]");
  const given = ["source", ...(writes ? ["target"] : []), ...(inner.length ? ["edits=[edit_from_dict(edit) for edit in edits]"] : [])];
  lines.push(`trace = model.trace(${given.join(", ")})`, "");
  lines.push(...shownLines({ site, head, query, view, classes: Boolean(app.about.output?.classes) }));
  return `${lines.join("\n")}\n`;
}

/**
 * @param {App} app
 * @param {string} text
 * @param {Edit[]} edits
 */
function sourceLines({ about }, text, edits) {
  const side = about.tokens.source ? "source" : "target";
  const put = edits.filter((edit) => edit.kind === "token" && edit.side === side);
  if (!put.length) return [`source = ${quote(text)}`];
  const open = about.family === "decoder" ? ["if source[-1] == model.tokenizer.end_id:", "    source = source[:-1]"] : [];
  return [`source = list(model.tokenizer.encode(${quote(text)}))`, ...open, ...put.map((edit) => replaced("source", "tokenizer", edit))];
}

/**
 * The page shows the edited run on the answer without edits, so that both can be compared.
 * @param {any} answer
 * @param {Edit[]} edits
 */
function targetLines(answer, edits) {
  const put = edits.filter((edit) => edit.kind === "token" && edit.side === "target");
  const ids = (answer.before ?? answer).ids.join(", ");
  return [`target = [model.target_tokenizer.start_id, ${ids}]  # ${answer.text.replace(/\s+/g, " ")}`, ...put.map((edit) => replaced("target", "target_tokenizer", edit))];
}

/**
 * @param {string} list
 * @param {string} tokenizer
 * @param {any} edit
 */
function replaced(list, tokenizer, { position, token }) {
  return `${list}[${position}] = model.${tokenizer}.pieces(${quote(token)}, specials=False)[0].id`;
}

/** @param {import("./source.js").Picture} image */
function imageLines({ width, height, rgb }) {
  if (!fits({ width, height })) return ['source = Image.open("image.png")'];
  const bytes = btoa(String.fromCharCode(...rgb));
  return [`source = Image.frombytes("RGB", (${width}, ${height}), b64decode(${quote(bytes)}))`];
}

/** @param {{ width: number, height: number }} image */
function fits({ width, height }) {
  return width * height <= MAX_PIXELS;
}

/** @param {{ site: string, head: number, query: number, view: string, classes: boolean }} shown */
function shownLines({ site, head, query, view, classes }) {
  if (view === "lens") return ["print(trace.lens())"];
  if (view === "attribution") return [`print(trace.attribution(${classes ? "" : `position=${query}`}))`];
  return [`weights = trace[${quote(site)}].weights(${head})  # queries × keys`, "print(weights)"];
}

/**
 * Return a text as a Python string: JSON strings are Python strings.
 * @param {string} text
 */
function quote(text) {
  return JSON.stringify(text);
}

/** @param {Record<string, any>} edit */
function literal(edit) {
  return `{${Object.entries(edit).map(([name, value]) => `${quote(name)}: ${typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value)}`).join(", ")}}`;
}
