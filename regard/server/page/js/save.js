// Save a pane as SVG or PNG exactly as shown. Text stays text, lines stay lines.

import { el } from "./dom.js";

const SKIPPED = "button, select, input, dialog, details.menu, .tools, .visually-hidden";
const STYLE_PROPERTIES = [
  ...["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity"],
  ...["font-size", "font-weight", "font-style", "font-family", "text-anchor", "letter-spacing"],
];
/** Default values, which are not written. */
/** @type {Record<string, string>} */
const DEFAULTS = { "fill-opacity": "1", "stroke-opacity": "1", "stroke-dasharray": "none", opacity: "1", "letter-spacing": "normal", "font-style": "normal" };

/**
 * SVG elements collected so far, and their bounding box.
 * @typedef {{ parts: string[], box: { left: number, top: number, right: number, bottom: number } }} Collected
 */

/**
 * Return an element as SVG, including parts that are scrolled out of view.
 * @param {HTMLElement} element
 * @returns {{ text: string, width: number, height: number }}
 */
export function toSvg(element) {
  element.classList.add("saving"); // removed before the next paint
  try {
    return renderSvg(element);
  } finally {
    element.classList.remove("saving");
  }
}

/** @param {HTMLElement} element */
function renderSvg(element) {
  const outer = element.getBoundingClientRect();
  const found = { parts: [], box: { left: outer.left, top: outer.top, right: outer.right, bottom: outer.top } };
  collect(element, found);
  const { left, top, right, bottom } = found.box;
  const [width, height] = [Math.ceil(right - left + 24), Math.ceil(bottom - top + 24)];
  const style = getComputedStyle(element);
  const ground = style.getPropertyValue("--ground").trim() || "#ffffff";
  const text = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="${left - 12} ${top - 12} ${width} ${height}" font-family="${escape(style.fontFamily)}">`,
    `<rect x="${left - 12}" y="${top - 12}" width="${width}" height="${height}" fill="${ground}"/>`,
    ...found.parts,
    "</svg>",
  ].join("\n");
  return { text, width, height };
}

/**
 * @param {HTMLElement} element
 * @param {string} name
 * @param {"svg" | "png"} kind
 */
export async function savePicture(element, name, kind) {
  const picture = toSvg(element);
  const svg = new Blob([picture.text], { type: "image/svg+xml" });
  download(kind === "svg" ? svg : await toPng(picture), `regard-${name}.${kind}`);
}

/**
 * @param {{ text: string, width: number, height: number }} picture
 * @returns {Promise<Blob>}
 */
export async function toPng({ text, width, height }) {
  const image = new Image();
  const bytes = new TextEncoder().encode(text);
  const raw = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  image.src = `data:image/svg+xml;base64,${btoa(raw)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) => canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("no picture"))), "image/png"));
}

/**
 * @param {import("./app.js").App} app
 * @param {string} text
 */
export async function copyText(app, text) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea.visually-hidden", { value: text });
    app.root.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  showNotice(app, app.t(done ? "copied" : "notCopied"));
}

/**
 * Show a short notice that disappears by itself, or when some work is done.
 * @param {import("./app.js").App} app
 * @param {string} text
 * @param {Promise<unknown>} [work]
 */
export function showNotice(app, text, work) {
  app.root.querySelector(".notice")?.remove();
  const made = el("div.notice", { "data-says": "" }, text);
  const end = () => made.remove();
  app.root.append(made);
  if (work) work.then(end, end);
  else setTimeout(end, 2200);
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
export function download(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * @param {Element} element
 * @param {Collected} found
 */
function collect(element, found) {
  const style = getComputedStyle(element);
  const unseen = style.display === "none" || style.visibility === "hidden" || style.clipPath === "inset(50%)"; // only for screen readers
  if (unseen || element.matches(SKIPPED)) return;
  const box = element.getBoundingClientRect();
  if (element instanceof SVGSVGElement) {
    const { x, y } = box;
    add(found, `<g transform="translate(${x} ${y})">${withInlineStyles(element)}</g>`, box);
    return;
  }
  if (element instanceof HTMLCanvasElement) {
    add(found, `<image x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}" style="image-rendering:pixelated" href="${element.toDataURL()}"/>`, box);
    return;
  }
  collectBox(style, box, found);
  for (const child of element.childNodes) {
    if (child instanceof Element) collect(child, found);
    else if (child instanceof Text) collectText(child, style, found);
  }
}

/**
 * @param {Collected} found
 * @param {string} part
 * @param {DOMRect} box
 */
function add(found, part, box) {
  found.parts.push(part);
  found.box.left = Math.min(found.box.left, box.left);
  found.box.top = Math.min(found.box.top, box.top);
  found.box.right = Math.max(found.box.right, box.right);
  found.box.bottom = Math.max(found.box.bottom, box.bottom);
}

/**
 * Collect background and borders.
 * @param {CSSStyleDeclaration} style
 * @param {DOMRect} box
 * @param {Collected} found
 */
function collectBox(style, box, found) {
  const ground = style.backgroundColor;
  if (box.width && box.height && !/^rgba\(.*, 0\)$|^transparent$/.test(ground)) {
    const round = Number.parseFloat(style.borderTopLeftRadius) || 0;
    add(found, `<rect x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}" rx="${round}" fill="${ground}"/>`, box);
  }
  const edges = { Top: [box.left, box.top, box.right, box.top], Bottom: [box.left, box.bottom, box.right, box.bottom], Left: [box.left, box.top, box.left, box.bottom], Right: [box.right, box.top, box.right, box.bottom] };
  for (const [side, [x1, y1, x2, y2]] of Object.entries(edges)) {
    const width = Number.parseFloat(/** @type {any} */ (style)[`border${side}Width`]);
    const kind = /** @type {any} */ (style)[`border${side}Style`];
    if (!width || kind === "none") continue;
    add(found, `<path d="M${x1} ${y1}L${x2} ${y2}" stroke="${/** @type {any} */ (style)[`border${side}Color`]}" stroke-width="${width}"${kind === "dashed" ? ' stroke-dasharray="3 2"' : ""}/>`, box);
  }
}

/**
 * Collect a text, line by line, at its position.
 * @param {Text} node
 * @param {CSSStyleDeclaration} style
 * @param {Collected} found
 */
function collectText(node, style, found) {
  const size = Number.parseFloat(style.fontSize);
  for (const line of linesOf(node)) {
    const { box } = line;
    const baseline = box.top + box.height / 2 + size * 0.35;
    const look = [
      `font-size="${style.fontSize}"`,
      `fill="${style.color}"`,
      style.fontWeight === "400" ? "" : `font-weight="${style.fontWeight}"`,
      style.fontStyle === "normal" ? "" : `font-style="${style.fontStyle}"`,
      style.textDecorationLine === "none" ? "" : `text-decoration="${style.textDecorationLine}"`,
      `font-family="${escape(style.fontFamily)}"`,
    ];
    const text = style.textTransform === "uppercase" ? line.text.toUpperCase() : line.text;
    add(found, `<text x="${box.left}" y="${baseline.toFixed(2)}" ${look.filter(Boolean).join(" ")} textLength="${box.width.toFixed(1)}" lengthAdjust="spacingAndGlyphs">${escape(text)}</text>`, box);
  }
}

/**
 * @param {Text} node
 * @returns {{ text: string, box: DOMRect }[]}
 */
function linesOf(node) {
  const words = node.data.matchAll(/\S+/g);
  const range = document.createRange();
  /** @type {{ start: number, end: number, box: DOMRect }[]} */
  const lines = [];
  for (const word of words) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const last = lines[lines.length - 1];
    if (last && Math.abs(last.box.top - box.top) < 2) last.end = word.index + word[0].length;
    else lines.push({ start: word.index, end: word.index + word[0].length, box });
  }
  return lines.map(({ start, end }) => {
    range.setStart(node, start);
    range.setEnd(node, end);
    return { text: node.data.slice(start, end).replace(/\s+/g, " "), box: range.getBoundingClientRect() };
  });
}

/**
 * Return the content of an SVG element with inline styles.
 * @param {Element} element
 * @returns {string}
 */
function withInlineStyles(element) {
  return Array.from(element.childNodes, (child) => {
    if (child instanceof Text) return escape(child.data);
    if (!(child instanceof SVGElement) || child.matches(".hit, .visually-hidden")) return "";
    const kept = Array.from(child.attributes).filter(({ name }) => !/^(class|tabindex|data-|on)/.test(name));
    const own = kept.map(({ name, value }) => `${name}="${escape(value)}"`);
    const given = new Set(kept.map(({ name }) => name));
    const style = getComputedStyle(child);
    const look = child.tagName === "g" ? [] : STYLE_PROPERTIES.filter((name) => !given.has(name) && differsFromDefault(name, style.getPropertyValue(name)));
    const written = look.map((name) => `${name}="${escape(style.getPropertyValue(name))}"`);
    return `<${child.tagName} ${[...own, ...written].join(" ")}>${withInlineStyles(child)}</${child.tagName}>`;
  }).join("");
}

/**
 * @param {string} name
 * @param {string} value
 */
function differsFromDefault(name, value) {
  return value !== "" && DEFAULTS[name] !== value;
}

/** @param {string} text */
function escape(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}
