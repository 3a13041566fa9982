// Helpers that create elements, canvases and text measurements.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, any>} Props
 */

/**
 * Create an element: el("button.primary", { title: "…", onclick: f }, "text").
 * @param {string} name a tag, followed by classes with dots
 * @param {Props} [props] attributes; functions become event listeners
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement & Record<string, any>}
 */
export function el(name, props = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  return /** @type {any} */ (applyProps(made, props, children));
}

/**
 * Create an SVG element.
 * @param {string} name
 * @param {Props} [props]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement & Record<string, any>}
 */
export function shape(name, props = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElementNS(SVG, tag);
  if (classes.length) made.setAttribute("class", classes.join(" "));
  return /** @type {any} */ (applyProps(made, props, children));
}

/**
 * Replace the children of an element.
 * @param {Element} parent
 * @param {...(Child | Child[])} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren(...toNodes(children));
}

/**
 * Replace the children of an element around one that stays where it is, so that it keeps its scrolling.
 * @param {Element} parent
 * @param {(Child | Child[])[]} before
 * @param {Element} kept
 * @param {(Child | Child[])[]} after
 */
export function fillAround(parent, before, kept, after) {
  if (kept.parentElement !== parent) return parent.replaceChildren(...toNodes(before), kept, ...toNodes(after));
  for (const child of [...parent.childNodes]) if (child !== kept) child.remove();
  kept.before(...toNodes(before));
  kept.after(...toNodes(after));
}

/**
 * @param {Element} made
 * @param {Props} props
 * @param {(Child | Child[])[]} children
 */
function applyProps(made, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") made.addEventListener(key.slice(2), value);
    else if (key === "style" && typeof value === "object") setStyles(made, value);
    else if (key === "value" || key === "checked") /** @type {any} */ (made)[key] = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...toNodes(children));
  return made;
}

/**
 * @param {Element} made
 * @param {Record<string, string | number>} styles
 */
function setStyles(made, styles) {
  for (const [key, value] of Object.entries(styles)) {
    /** @type {HTMLElement} */ (made).style.setProperty(key, String(value));
  }
}

/**
 * @param {(Child | Child[])[]} children
 * @returns {(Node | string)[]}
 */
function toNodes(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/**
 * Return whether the explorer is the whole page rather than part of another one.
 * @param {Element} root
 */
export function isPage(root) {
  return root.parentElement === document.body;
}

/** Return whether the main pointer is a finger. */
export function isTouch() {
  return matchMedia("(pointer: coarse)").matches;
}

/**
 * Remember the focused element before a rebuild. The returned function focuses the element that
 * replaced it, so that keyboard users stay where they were.
 * @param {Element} root
 * @returns {() => void}
 */
export function rememberFocus(root) {
  const old = document.activeElement;
  if (!old || old === root || !root.contains(old)) return () => undefined;
  const kind = [old.tagName, ...old.classList].join(".");
  const n = Array.from(root.querySelectorAll(kind)).indexOf(old);
  return () => {
    const other = /** @type {HTMLElement & { setSelectionRange?: any, value?: string } | undefined} */ (root.querySelectorAll(kind)[n]);
    if (old.isConnected || !other) return;
    other.focus({ preventScroll: true });
    if (other.matches("textarea")) other.setSelectionRange(other.value?.length, other.value?.length);
  };
}

/** The longest time, in milliseconds, that deferred work waits. */
const MAX_IDLE_WAIT = 100;

/**
 * Wait until the current frame is painted and the browser is idle; only briefly in hidden tabs and
 * in browsers without requestIdleCallback.
 * @returns {Promise<void>}
 */
export function whenIdle() {
  return new Promise((done) => {
    if (document.hidden || typeof requestIdleCallback !== "function") setTimeout(done, MAX_IDLE_WAIT / 4);
    else requestAnimationFrame(() => requestAnimationFrame(() => requestIdleCallback(() => done(), { timeout: MAX_IDLE_WAIT })));
  });
}

/**
 * Return how much larger an element is on the screen than its own pixels, as while presenting.
 * @param {Element} element
 */
export function zoomOf(element) {
  return /** @type {any} */ (element).currentCSSZoom || 1;
}

/**
 * Return where a pointer is, in pixels of an element.
 * @param {Element} element
 * @param {{ clientX: number, clientY: number }} event
 */
export function pointIn(element, event) {
  const box = element.getBoundingClientRect();
  const zoom = zoomOf(element);
  return { x: (event.clientX - box.left) / zoom, y: (event.clientY - box.top) / zoom };
}

/**
 * Size a canvas for the pixel ratio of the screen and return its context, scaled to CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @returns {CanvasRenderingContext2D}
 */
export function sharpen(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [wide, tall] = [width, height].map((size) => Math.max(1, Math.round(size * ratio)));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  if (canvas.width === wide && canvas.height === tall) {
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, wide, tall); // cheaper than resizing
  } else {
    [canvas.width, canvas.height] = [wide, tall];
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/** @type {{ pen: CanvasRenderingContext2D, family: string, widths: Map<string, number> } | null} */
let MEASURE = null;

/** Return the page's fonts, read once because reading forces a style recalculation. */
export function fontFamily() {
  return measure().family;
}

function measure() {
  if (!MEASURE) {
    const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
    const root = document.querySelector(".regard") ?? document.body;
    MEASURE = { pen, family: getComputedStyle(root).fontFamily, widths: new Map() };
  }
  return MEASURE;
}

/**
 * Return the width of a text in the page's font.
 * @param {string} text
 * @param {number} size in pixels
 */
export function textWidth(text, size) {
  const { pen, family, widths } = measure();
  const name = `${size} ${text}`;
  let found = widths.get(name);
  if (found === undefined) {
    pen.font = `${size}px ${family}`;
    widths.set(name, (found = pen.measureText(text).width));
  }
  return found;
}
