// A pad to draw an image on: the model classifies it while it is drawn.

import { keepLatest } from "../debounce.js";
import { el } from "../dom.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {{ left: number, top: number, right: number, bottom: number }} Bounds
 */

/** The pad in pixels, and the width of its pen. */
const SIZE = 224;
const PEN = 26;

/**
 * Open the pad, or close it if it is open.
 * @param {App} app
 * @param {(file: Blob | null) => Promise<unknown>} show called with the drawing after each stroke
 * @param {"drawHere" | "compareDrawHere"} [title]
 */
export function toggleDrawingPad(app, show, title = "drawHere") {
  const { t, root } = app;
  const old = root.querySelector(".drawing-pad");
  old?.remove();
  if (old?.getAttribute("data-of") === title) return undefined; // that of the other side is replaced
  const canvas = /** @type {HTMLCanvasElement & Record<string, any>} */ (el("canvas", { width: SIZE, height: SIZE, "aria-label": t(title), role: "img" }));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
  /** @type {Bounds | null} */
  let bounds = null;
  const send = keepLatest(async () => bounds && show(await fitted(canvas, bounds)));
  const clear = () => {
    pen.fillStyle = "black";
    pen.fillRect(0, 0, SIZE, SIZE);
    Object.assign(pen, { strokeStyle: "white", lineWidth: PEN, lineCap: "round", lineJoin: "round" });
    bounds = null;
  };
  const draw = (/** @type {PointerEvent} */ event) => {
    if (!event.buttons) return;
    const box = canvas.getBoundingClientRect();
    const [x, y] = [((event.clientX - box.left) * SIZE) / box.width, ((event.clientY - box.top) * SIZE) / box.height];
    if (event.type === "pointerdown") {
      canvas.setPointerCapture(event.pointerId);
      pen.beginPath();
      pen.moveTo(x, y);
    }
    pen.lineTo(x, y);
    pen.stroke();
    bounds = { left: Math.min(bounds?.left ?? x, x), top: Math.min(bounds?.top ?? y, y), right: Math.max(bounds?.right ?? x, x), bottom: Math.max(bounds?.bottom ?? y, y) };
    send(undefined);
  };
  for (const name of ["pointerdown", "pointermove"]) canvas.addEventListener(name, /** @type {any} */ (draw));
  canvas.addEventListener("pointerup", () => send(undefined));
  clear();
  const close = () => root.querySelector(".drawing-pad")?.remove();
  root.append(el("aside.drawing-pad", { "aria-label": t("draw"), "data-of": title, onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && close() },
    el("header", {}, el("h2", {}, t(title)), el("button.quiet", { onclick: clear }, t("drawClear")), el("button.icon", { title: t("close"), "aria-label": t("close"), onclick: close }, "×")),
    canvas));
  return undefined;
}

/**
 * Return a drawing moved and scaled so that it fills the image, as in the data of such models.
 * @param {HTMLCanvasElement} canvas
 * @param {Bounds} bounds
 * @returns {Promise<Blob | null>}
 */
function fitted(canvas, { left, top, right, bottom }) {
  const side = Math.max(right - left, bottom - top) + PEN;
  const made = document.createElement("canvas");
  [made.width, made.height] = [SIZE, SIZE];
  const pen = /** @type {CanvasRenderingContext2D} */ (made.getContext("2d"));
  pen.fillRect(0, 0, SIZE, SIZE);
  pen.drawImage(canvas, (left + right - side) / 2, (top + bottom - side) / 2, side, side, 0, 0, SIZE, SIZE);
  return new Promise((done) => made.toBlob(done, "image/png"));
}
