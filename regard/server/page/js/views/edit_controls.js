// The drawer with the edit controls of the open head: temperature, scale, ablation; and of the
// selected cell: mask, score, weight, token. It lies over the overview and never moves the pattern.

import { el, fill } from "../dom.js";
import { withEdit, withoutEdit } from "../edits.js";
import { short } from "../format.js";
import { formula, root, v } from "../formula.js";
import { rowAt } from "../selection.js";
import { groupTitle } from "./overview.js";

/** @typedef {import("../app.js").App} App */

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function editDrawer(app) {
  const { t, store } = app;
  const controls = editControls(app);
  const title = el("span.title");
  const close = () => {
    store.set({ editing: false, drawing: false });
    /** @type {HTMLElement | null} */ (app.root.querySelector(".edit-toggle"))?.focus();
  };
  const onkeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  };
  const element = el("aside.drawer", { "aria-label": t("editHead"), onkeydown },
    el("header", {}, el("h2", {}, t("editHead")), title, el("button.icon.close", { title: t("close"), "aria-label": t("close"), onclick: close }, "×")),
    controls.element);
  return {
    element,
    update: () => {
      const { site, head } = app.open;
      const opens = element.hidden && store.state.editing;
      element.hidden = !store.state.editing;
      app.root.classList.toggle("editing", store.state.editing);
      app.root.classList.toggle("drawing", store.state.drawing);
      if (element.hidden) return;
      const layer = site.layer === null ? "" : ` · ${t("layerName", { layer: site.layer })}`;
      fill(title, `${groupTitle(app, site.group)}${layer} · ${t("headName", { head })}`);
      controls.update();
      if (opens) keepInSight(app, element);
    },
  };
}

/**
 * Scroll the page until the drawer does not cover the selected cell, where they are above each other.
 * @param {App} app
 * @param {HTMLElement} drawer
 */
function keepInSight({ root }, drawer) {
  const cell = root.querySelector(".board rect.chosen")?.getBoundingClientRect();
  const { left, bottom } = drawer.getBoundingClientRect();
  const top = (drawer.offsetParent?.getBoundingClientRect().top ?? bottom) - drawer.offsetHeight; // where it is when it has moved in
  if (cell && cell.right > left && cell.bottom > top) scrollBy({ top: cell.bottom - top + 8 });
}

/** @param {App} app */
function editControls(app) {
  const { t, store } = app;
  const heat = temperature(app);
  const scale = toggle(app, "scaleOn", (on) => setEdit(app, { kind: "unscaled", site: app.open.site.path }, !on));
  const off = toggle(app, "headOff", (on) => setEdit(app, { kind: "ablate", site: app.open.site.path, head: app.open.head }, on));
  const mean = toggle(app, "headMean", (on) => setEdit(app, { kind: "mean", site: app.open.site.path, head: app.open.head }, on));
  const pencil = el("button.quiet.pencil", { title: t("maskHelp"), onclick: () => store.set({ drawing: !store.state.drawing }) }, "✎ ", t("maskEdit"));
  const score = numberField(app, "score");
  const weight = numberField(app, "weight");
  const token = tokenField(app);
  const cell = el("h3.cell");
  const element = el("div.edit-controls", { "aria-label": t("editHead"), role: "group" },
    el("div.controls", {}, heat.element, el("div.row", {}, scale.element, off.element, mean.element)),
    cell,
    el("div.controls", {}, el("div.row", {}, score.element, weight.element, token.element), pencil));
  const closed = el("p.note", {}, t("notEditable"));
  return {
    element: el("div.edit-body", {}, element, closed),
    update: () => {
      const { query, key } = store.state;
      fill(cell, t("selectedCell"), " ", el("b.term.query", {}, app.open.rows[query].label), " → ", el("b.term.key", {}, app.open.columns[key].label));
      const { changes, site } = app.open;
      const possible = !app.open.large && app.open.before.scores !== null;
      element.hidden = !possible;
      closed.hidden = possible;
      heat.update();
      scale.update(!changes?.unscaled);
      scale.element.hidden = site.scale === 1 && !changes?.unscaled;
      off.update(changes?.off ?? false);
      mean.update(changes?.mean ?? false);
      mean.element.hidden = app.source.model !== null && site.group === "decoder.cross"; // a recurrent decoder has no mean before the last query
      pencil.setAttribute("aria-pressed", String(store.state.drawing));
      score.update();
      weight.update();
      token.update();
    },
  };
}

/** @param {App} app */
function temperature(app) {
  const { t } = app;
  let continues = false;
  const slider = el("input", {
    type: "range",
    min: 0,
    max: 4,
    step: 0.05,
    "aria-label": t("temperature"),
    oninput: () => {
      set(Number(slider.value), continues);
      continues = true;
    },
    onchange: () => (continues = false),
  });
  const shown = el("button.quiet.digits", { title: t("resetTemperature"), onclick: () => set(app.open.site.temperature[app.open.head], false) });
  const set = (/** @type {number} */ value, /** @type {boolean} */ on) => {
    const { site, head } = app.open;
    const edit = /** @type {const} */ ({ kind: "temperature", site: site.path, head, value });
    const { edits } = app.store.state;
    const same = value === site.temperature[head];
    app.store.set({ edits: same ? withoutEdit(edits, edit) : withEdit(edits, edit) }, on);
  };
  return {
    element: el("label.slider", {}, t("temperature"), slider, shown),
    update: () => {
      const value = app.open.after.temperature;
      if (document.activeElement !== slider || Number(slider.value) !== value) slider.value = String(value);
      shown.textContent = short(value, 2);
      slider.closest("label")?.classList.toggle("changed", value !== app.open.before.temperature);
    },
  };
}

/**
 * @param {App} app
 * @param {"scaleOn" | "headOff" | "headMean"} name
 * @param {(on: boolean) => void} act
 */
function toggle(app, name, act) {
  const box = el("input", { type: "checkbox", onchange: () => act(box.checked) });
  return {
    element: el(`label.${name}`, { title: app.t(/** @type {any} */ (`${name}Help`)) }, box, name === "scaleOn" ? scaleFormula() : app.t(name)),
    update: (/** @type {boolean} */ on) => {
      box.checked = on;
    },
  };
}

export function scaleFormula() {
  return formula("÷ √d_k", "÷ ", root(v("d", "k")));
}

/**
 * A field for the score or weight of the selected cell.
 * @param {App} app
 * @param {"score" | "weight"} kind
 */
function numberField(app, kind) {
  const name = kind === "score" ? "scoreEdit" : "weightEdit";
  const field = el("input.digits", {
    type: "number",
    step: kind === "score" ? 0.1 : 0.05,
    "aria-label": app.t(name),
    onchange: () => {
      const { query, key } = app.store.state;
      const value = Number(field.value);
      if (field.value === "" || !Number.isFinite(value)) return;
      setEdit(app, { kind, site: app.open.site.path, head: app.open.head, query, key, value }, true);
    },
  });
  return {
    element: el(`label.${kind}`, { title: app.t(kind === "score" ? "scoreHelp" : "weightHelp") }, app.t(name), field),
    update: () => {
      const off = kind === "weight" && app.open.after.off; // it takes nothing from any key
      field.disabled = off;
      if (document.activeElement === field) return;
      const { query, key } = app.store.state;
      const line = rowAt(app, query);
      const number = off ? 0 : ((kind === "score" ? line.scores : line.weights)?.data[key] ?? 0);
      field.value = String(Number(number.toFixed(3)));
    },
  };
}

/**
 * A field that replaces the token of the selected key; it needs a model.
 * @param {App} app
 */
function tokenField(app) {
  const place = () => ({ side: app.open.site.answers ?? "", position: app.store.state.key });
  const field = el("input.other", {
    type: "text",
    "aria-label": app.t("tokenEdit"),
    onchange: () => {
      const token = field.value.trim();
      const edit = /** @type {const} */ ({ kind: "token", ...place(), token });
      setEdit(app, edit, token !== "" && token !== modelToken(app, place()));
    },
  });
  const element = el("label.replaced", { title: app.t("tokenHelp") }, app.t("tokenEdit"), field);
  return {
    element,
    update: () => {
      element.hidden = !app.source.model || !modelToken(app, place()) || app.about.image !== null;
      if (document.activeElement === field) return;
      const { side, position } = place();
      const put = app.store.state.edits.find((edit) => edit.kind === "token" && edit.side === side && edit.position === position);
      field.value = put?.kind === "token" ? put.token : modelToken(app, place());
    },
  };
}

/**
 * @param {App} app
 * @param {{ side: string, position: number }} place
 */
function modelToken({ about }, { side, position }) {
  return about.tokens[side]?.[position]?.trim() ?? "";
}

/**
 * @param {App} app
 * @param {import("../edits.js").Edit} edit
 * @param {boolean} on
 */
function setEdit(app, edit, on) {
  const { edits } = app.store.state;
  app.store.set({ edits: on ? withEdit(edits, edit) : withoutEdit(edits, edit) });
}

/**
 * Handle a click on the pattern: select and pin, or change the mask in mask mode.
 * @param {App} app
 * @param {number} query −1 to keep the selected query
 * @param {number} key
 */
export function clickCell(app, query, key) {
  const { state } = app.store;
  const place = { query: query < 0 ? state.query : query, key: key < 0 ? state.key : key };
  if (!state.drawing || key < 0) app.store.set({ ...place, pinned: true });
  else toggleCell(app, place.query, key);
}

/**
 * Forbid or allow a connection; if the mask cannot be changed, only select it.
 * @param {App} app
 * @param {number} query
 * @param {number} key
 */
export function toggleCell(app, query, key) {
  const { open, store } = app;
  const { edits: old } = store.state;
  if (!open.before.scores || open.large) {
    store.set({ query, key, pinned: true });
    return;
  }
  const at = query * open.site.n_key + key;
  const [now, first] = [open.after.allowed, open.before.allowed].map((table) => !table || table[at] === 1);
  const kind = now ? "forbid" : "allow";
  const edit = /** @type {const} */ ({ kind, site: open.site.path, head: open.head, query, key });
  const edits = first === !now ? withoutEdit(old, edit) : withEdit(old, edit);
  store.set({ query, key, pinned: true, edits });
}
