// The header of a pane: title, tools, save menu, enlarge.

import { el } from "../dom.js";
import { copyText, savePicture } from "../save.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {"overview" | "pattern" | "steps"} Name
 */

/**
 * @param {App} app
 * @param {Name} name
 * @param {Node | Node[] | null} tools
 * @param {() => string} data what "copy data" copies
 */
export function paneHead(app, name, tools, data) {
  const { t } = app;
  const large = el("button.icon.large", {
    title: t("enlarge"),
    "aria-label": t("enlarge"),
    onclick: () => app.store.set({ pane: app.store.state.pane === name ? "" : name }),
  }, "⤢");
  return el("header.head", {}, el("h2", {}, t(name)), ...[tools ?? ""].flat(), el("span.gap"), saveMenu(app, name, data), large);
}

/**
 * @param {App} app
 * @param {string} name
 * @param {() => string} data
 */
export function saveMenu(app, name, data) {
  const { t } = app;
  const menu = el("details.menu.save", {}, el("summary.icon", { title: t("save"), "aria-label": t("save") }, "⤓"));
  const item = (/** @type {string} */ text, /** @type {() => void} */ act) =>
    el("button", {
      onclick: () => {
        menu.removeAttribute("open");
        act();
      },
    }, text);
  const pane = () => /** @type {HTMLElement} */ (menu.closest(".pane"));
  menu.append(
    el("div.items", {},
      item(t("saveSvg"), () => savePicture(pane(), name, "svg")),
      item(t("savePng"), () => savePicture(pane(), name, "png")),
      item(t("copyData"), () => copyText(app, data()))),
  );
  return menu;
}
