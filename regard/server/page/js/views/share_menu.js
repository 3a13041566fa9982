// The share menu: a link, one HTML file, pictures, Python, and a frame for other pages.

import { el, isPage } from "../dom.js";
import { request } from "../http.js";
import { togglePresenting } from "../present.js";
import { pythonSnippet } from "../python_snippet.js";
import { copyText, download, savePicture, showNotice } from "../save.js";
import { hasAddress, writeState } from "../state.js";
import { figurePlace, openFigures } from "./figure_dialog.js";

/** @typedef {import("../app.js").App} App */

/** Kinds of figures that the server draws, by view; the pattern for all others. */
/** @type {Record<string, string>} */
const FIGURES = { lines: "lines", lens: "lens", attribution: "attribution" };

/**
 * @param {App} app
 * @returns {HTMLElement | null}
 */
export function shareMenu(app) {
  const { t, store, source } = app;
  const live = isLive(app);
  const head = live && store.state.page === "explore";
  const menu = el("details.menu.share", {}, el("summary.icon", { title: t("share"), "aria-label": t("share") }, "⇪"));
  const item = (/** @type {string} */ name, /** @type {import("../messages.js").MessageKey} */ text, /** @type {() => void | Promise<void>} */ act) =>
    el("button", { "data-share": name, onclick: () => run(app, menu, act) }, t(text));
  menu.append(el("div.items", {},
    hasAddress() && isPage(app.root) ? item("link", "copyLink", () => copyText(app, addressOf(app))) : "",
    live ? item("html", "shareHtml", () => save(app, htmlPath(app), "regard.html")) : "",
    store.state.page === "worked" ? "" : [
      item("png", "savePng", () => savePicture(shownPane(app), store.state.page, "png")),
      item("svg", "saveSvg", () => savePicture(shownPane(app), store.state.page, "svg")),
    ],
    head ? item("pdf", "sharePdf", async () => save(app, await figurePath(app), "regard.pdf")) : "",
    live && store.state.page !== "worked" ? item("figures", "shareFigures", () => openFigures(app)) : "",
    live && source ? item("python", "sharePython", () => copyText(app, pythonSnippet(app))) : "",
    live && ["explore", "flow"].includes(store.state.page) ? item("frame", "shareFrame", () => copyText(app, frameOf(app))) : "",
    isPage(app.root) ? item("present", "present", () => togglePresenting(app)) : ""));
  return menu;
}

/** @param {App} app */
function isLive({ source, about }) {
  return Boolean(about.live && about.title && source.model);
}

/**
 * @param {App} app
 * @param {HTMLElement} menu
 * @param {() => void | Promise<void>} act
 */
async function run(app, menu, act) {
  menu.removeAttribute("open");
  app.store.address.flush?.();
  try {
    await act();
  } catch (error) {
    showNotice(app, app.t.error(error));
  }
}

/**
 * Return the link to what is shown.
 * @param {App} app
 */
function addressOf({ store }) {
  store.address.flush?.();
  return location.href;
}

/** @param {App} app */
function shownPane({ root, store }) {
  const name = store.state.page === "explore" ? `.pane.${store.state.pane || "pattern"}` : ".flow-page, .pane";
  return /** @type {HTMLElement} */ (root.querySelector(name));
}

/**
 * @param {App} app
 * @param {string} path
 * @param {string} name
 */
async function save(app, path, name) {
  const work = app.whileBusy(request(path).then((response) => response.blob()));
  showNotice(app, app.t("sharePreparing", { name }), work);
  download(await work, name);
}

/**
 * The file has the run without edits; the edits are part of its state, and can be changed there.
 * @param {App} app
 */
function htmlPath({ source, store }) {
  const state = writeState({ ...store.state, page: store.state.page, drawing: false, editing: false }, store.start);
  return `/api/trace/${/** @type {any} */ (source).described.id}/html?${new URLSearchParams({ state })}`;
}

/**
 * Return the path of the figure of this view, drawn from the edited run.
 * @param {App} app
 */
async function figurePath(app) {
  const { id, given } = await figurePlace(app);
  return `/api/trace/${id}/figure?${given}&kind=${FIGURES[app.store.state.view] ?? "pattern"}&format=pdf`;
}

/**
 * Return the HTML of a frame that shows this view without anything around it.
 * @param {App} app
 */
function frameOf({ store, about }) {
  store.address.flush?.();
  const address = new URL(location.href);
  address.searchParams.set("embed", store.state.page === "flow" ? "flow" : "pattern");
  const escaped = address.href.replace(/&/g, "&amp;").replace(/"/g, "%22");
  return `<iframe src="${escaped}" title="regard: ${about.title}" width="760" height="560" loading="lazy"></iframe>`;
}
