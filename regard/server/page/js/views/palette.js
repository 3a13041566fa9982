// The command palette: a field that finds heads, tokens, views, lessons, models and examples.

import { el, fill } from "../dom.js";
import { LESSONS } from "../lessons.js";
import { openView, viewsFrom } from "../selection.js";
import { labelOf } from "../tokens.js";
import { openLesson } from "./lesson_panel.js";
import { groupTitle } from "./overview.js";
import { selectToken } from "./text_rows.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {{ kind: string, name: string, detail?: string, act: () => void }} Command
 */

/** The largest number of results shown. */
const MAX_SHOWN = 12;

/** @param {App} app */
export function openPalette(app) {
  const { t } = app;
  const commands = commandsOf(app);
  let found = /** @type {Command[]} */ ([]);
  let at = 0;
  const list = el("ul.results", { role: "listbox", id: "regard-results", "aria-label": t("palette") });
  const status = el("p.visually-hidden", { role: "status" });
  const field = el("input", {
    ...{ type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", placeholder: t("paletteHint"), "aria-label": t("palette") },
    ...{ "aria-autocomplete": "list", "aria-controls": "regard-results", "aria-expanded": "true" },
    oninput: () => search(),
  });
  const choose = (/** @type {number} */ i) => {
    dialog.close();
    found[i]?.act();
  };
  const mark = () => {
    list.querySelectorAll("[role=option]").forEach((one, i) => one.setAttribute("aria-selected", String(i === at)));
    const option = list.children[at];
    if (found.length) field.setAttribute("aria-activedescendant", option.id);
    else field.removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  };
  const search = () => {
    found = rank(commands, field.value).slice(0, MAX_SHOWN);
    at = 0;
    const options = found.map((one, i) => el("li", { role: "option", id: `regard-result-${i}`, onclick: () => choose(i) }, el("b", {}, one.name), " ", el("span.small", {}, one.detail ?? ""), el("span.kind.small", {}, one.kind)));
    fill(list, options);
    fill(status, found.length ? t("paletteCount", { n: found.length }) : t("paletteNone"));
    none.hidden = found.length > 0;
    mark();
  };
  const none = el("p.note", {}, t("paletteNone"));
  const onkeydown = (/** @type {KeyboardEvent} */ event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by && found.length) at = (at + by + found.length) % found.length;
    else if (event.key === "Enter" && !event.isComposing) choose(at);
    else return;
    event.preventDefault();
    mark();
  };
  const dialog = el("dialog.palette", { "aria-label": t("palette"), onkeydown, onclose: () => dialog.remove(), onclick: (/** @type {Event} */ event) => event.target === dialog && dialog.close() }, field, list, none, status);
  app.root.append(dialog);
  app.root.classList.remove("menu-open"); // the menu that it may have been opened from
  dialog.showModal();
  search();
}

/**
 * @param {App} app
 * @returns {Command[]}
 */
function commandsOf(app) {
  const { t, store, about, sites, open } = app;
  const heads = sites.flatMap((site) => Array.from({ length: site.n_heads }, (_, head) => ({
    kind: t("paletteHead"),
    name: site.layer === null ? `H${head}` : `L${site.layer}H${head}`,
    detail: groupTitle(app, site.group),
    act: () => store.set({ page: "explore", site: site.path, head }),
  })));
  const here = (/** @type {Command & { detail: string }} */ one) => Number(one.detail === groupTitle(app, open.site.group));
  const tokens = Object.entries(about.tokens).filter(([side]) => side !== "target" || !about.tokens.source).flatMap(([side, list]) => about.image ? [] : list.map((token, i) => ({
    kind: t("paletteToken"),
    name: labelOf(token),
    detail: `${t(side === "output" ? "answer" : "input")} ${i}`,
    act: () => void selectToken(app, side, i),
  })));
  const views = viewsFrom(app, open.site).map((view) => ({ kind: t("paletteView"), name: t(/** @type {any} */ (`view_${view}`)), act: () => store.set({ page: "explore", ...openView(app, view) }) }));
  const pages = /** @type {const} */ (["flow", "explore", "worked"]).map((page) => ({ kind: t("palettePage"), name: t(page), act: () => store.set({ page }) }));
  const lessons = LESSONS.map(({ name }, i) => ({ kind: t("paletteLesson"), name: t(/** @type {any} */ (`lesson${name}`)), act: () => openLesson(app, i + 1) }));
  const requests = (app.requests?.() ?? []).map(({ kind, name, request }) => ({ kind: t(kind), name, act: () => ask(app, request) }));
  return [...pages, ...views, ...tokens, ...heads.sort((a, b) => here(b) - here(a)), ...lessons, ...requests];
}

/**
 * @param {App} app
 * @param {import("../http.js").TraceRequest} request
 */
function ask({ root }, request) {
  root.dispatchEvent(new CustomEvent("regard-request", { detail: { text: undefined, image: undefined, target: undefined, ...request } }));
}

/**
 * Return the commands whose names contain the letters of a text in order, the best first.
 * @param {Command[]} commands
 * @param {string} text
 */
export function rank(commands, text) {
  const wanted = text.toLowerCase().replace(/\s+/g, "");
  const scored = commands.map((one, i) => ({ one, i, score: match(one.name.toLowerCase(), wanted) })).filter(({ score }) => score > 0);
  return scored.sort((a, b) => b.score - a.score || a.i - b.i).map(({ one }) => one);
}

/**
 * Score how well a name matches: 4 the whole name, 3 its start, 2 a part, below 1 letters in order.
 * @param {string} name
 * @param {string} wanted
 */
function match(name, wanted) {
  const bare = name.replace(/\s+/g, "");
  if (!wanted || bare === wanted) return 4;
  if (bare.startsWith(wanted)) return 3;
  if (bare.includes(wanted)) return 2;
  let from = 0;
  let gaps = 0;
  for (const letter of wanted) {
    const next = bare.indexOf(letter, from);
    if (next < 0) return 0;
    gaps += next - from;
    from = next + 1;
  }
  return 1 / (1 + gaps);
}
