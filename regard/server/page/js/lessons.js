// The course: lessons in their order, which of them the page can open, and which are done.

import { ATTENDING_LESSONS } from "./course/attending.js";
import { BEYOND_LESSONS } from "./course/beyond.js";
import { READING_LESSONS } from "./course/reading.js";
import { STACKING_LESSONS } from "./course/stacking.js";
import { fetchModels } from "./http.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./course/parts.js").Lesson} Lesson
 * @typedef {{ models: any[], runs: string[] }} Served what the server can open
 */

/** @type {Lesson[]} */
export const LESSONS = [...READING_LESSONS, ...ATTENDING_LESSONS, ...STACKING_LESSONS, ...BEYOND_LESSONS];

/** @type {Promise<Served> | null} */
let asked = null;
/** @type {Served | null} what the server has answered */
let served = null;

/**
 * Ask the server once what it can open; nothing for a file.
 * @param {App} app
 * @returns {Promise<Served | null>}
 */
export async function loadServed({ about }) {
  if (!about.live) return null;
  asked ??= fetchModels().catch(() => ({ models: [], runs: [] }));
  served = await asked;
  return served;
}

/**
 * Return the reason why a lesson cannot be opened here; "" if it can.
 * @param {App} app
 * @param {Lesson} lesson
 */
export function whyClosed(app, lesson) {
  const { t, about, root } = app;
  if (lesson.replay) return root.dataset.replays || served?.runs.length ? "" : t("lessonNeedsRun");
  if (root.dataset.replays) return lesson.fits?.(app) && !about.live ? "" : t("lessonNeedsPage");
  if (modelOf(lesson) || lesson.fits?.(app)) return "";
  if (about.live && !served) return ""; // not known yet
  return t(about.live ? "lessonNeedsModel" : "lessonNeedsServer", { model: lesson.models[0] });
}

/**
 * Return the model with which a lesson opens, as the server describes it.
 * @param {Lesson} lesson
 */
function modelOf({ models }) {
  return models.map((name) => served?.models.find((one) => one.name === name)).find(Boolean) ?? null;
}

/**
 * Return the request that a lesson needs; null if the open trace will do.
 * @param {App} app
 * @param {Lesson} lesson
 * @param {boolean} keepsText whether another text of the same model is kept
 * @returns {import("./http.js").TraceRequest | null}
 */
export function requestOf({ about }, lesson, keepsText) {
  const model = modelOf(lesson);
  if (!model) return null;
  const now = /** @type {any} */ (about).asked ?? {};
  const example = lesson.example === undefined ? null : model.examples[lesson.example];
  const wanted = { model: model.name, text: lesson.text ?? example?.text ?? undefined, image: example?.image ?? undefined };
  if (now.model === wanted.model && (keepsText || (now.text === wanted.text && now.image === wanted.image && !now.target))) return null;
  return wanted;
}

/**
 * Return whether a link to a later paragraph also says with which text to read it.
 * @param {App} app
 */
export function keepsText({ store, root }) {
  return store.state.step > 0 && root.dataset.chosen !== "page";
}

const LEARNED = "regard-lessons";

/**
 * Return the names of the lessons that are done.
 * @returns {string[]}
 */
export function savedLessons() {
  try {
    const found = JSON.parse(localStorage.getItem(LEARNED) ?? "[]");
    return LESSONS.map(({ name }) => name).filter((name) => found.includes(name));
  } catch {
    return []; // a page from disk may not have localStorage
  }
}

/** @param {string[]} names */
export function saveLessons(names) {
  try {
    localStorage.setItem(LEARNED, JSON.stringify(names));
  } catch {
    // it is remembered until the page is closed
  }
}
