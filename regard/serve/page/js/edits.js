// Edits: what the reader has changed, as a list that can be undone, shared and sent to a model.
// Kinds and fields are those of Python's regard.temperature, unscaled, forbid, ablate, set_scores.

/**
 * @typedef {{ kind: "temperature", site: string, head: number, value: number }
 *   | { kind: "unscaled", site: string }
 *   | { kind: "ablate", site: string, head: number }
 *   | { kind: "forbid", site: string, head: number, query: number, key: number }
 *   | { kind: "allow", site: string, head: number, query: number, key: number }
 *   | { kind: "score", site: string, head: number, query: number, key: number, value: number }} Edit
 */

/** Which fields a kind has, in the order in which they are written. */
const FIELDS = {
  temperature: ["site", "head", "value"],
  unscaled: ["site"],
  ablate: ["site", "head"],
  forbid: ["site", "head", "query", "key"],
  allow: ["site", "head", "query", "key"],
  score: ["site", "head", "query", "key", "value"],
};

/**
 * A list of edits in one line, for the address.
 * @param {Edit[]} edits
 */
export function writeEdits(edits) {
  return edits
    .map((edit) => [edit.kind, ...FIELDS[edit.kind].map((f) => /** @type {any} */ (edit)[f])].join(":"))
    .join("~");
}

/**
 * The list that was written; what makes no sense is left out.
 * @param {string} text
 * @returns {Edit[]}
 */
export function readEdits(text) {
  return text.split("~").map(readEdit).filter((edit) => edit !== null);
}

/**
 * @param {string} text
 * @returns {Edit | null}
 */
function readEdit(text) {
  const [kind, site, ...rest] = text.split(":");
  const fields = /** @type {Record<string, string[]>} */ (FIELDS)[kind];
  if (!fields || !site || rest.length !== fields.length - 1) return null;
  const numbers = rest.map(Number);
  const good = fields.slice(1).every((f, i) => fits(f, numbers[i]));
  if (!good) return null;
  const named = fields.slice(1).map((f, i) => [f, numbers[i]]);
  return /** @type {Edit} */ ({ kind, site, ...Object.fromEntries(named) });
}

/**
 * @param {string} field
 * @param {number} x
 */
function fits(field, x) {
  return field === "value" ? Number.isFinite(x) : Number.isInteger(x) && x >= 0;
}

/**
 * The list with one more edit, which takes the place of those it makes void.
 * @param {Edit[]} edits
 * @param {Edit} edit
 * @returns {Edit[]}
 */
export function withEdit(edits, edit) {
  return [...edits.filter((one) => !isVoided(one, edit)), edit];
}

/**
 * @param {Edit[]} edits
 * @param {Edit} edit
 */
export function withoutEdit(edits, edit) {
  return edits.filter((one) => !isVoided(one, edit));
}

/**
 * Whether an older edit speaks of the same thing as a newer one.
 * @param {any} older
 * @param {any} newer
 */
function isVoided(older, newer) {
  const kinds = [older.kind, newer.kind];
  const mask = kinds.every((kind) => kind === "forbid" || kind === "allow");
  if (older.kind !== newer.kind && !mask) return false;
  return ["site", "head", "query", "key"].every((field) => older[field] === newer[field]);
}

/**
 * What edits mean for one head; null if none of them concerns it.
 * @typedef {object} Changes
 * @property {number | null} temperature
 * @property {boolean} unscaled
 * @property {boolean} off
 * @property {{ query: number, key: number, allowed: boolean }[]} cells
 * @property {{ query: number, key: number, value: number }[]} scores
 */

/**
 * @param {Edit[]} edits
 * @param {string} site
 * @param {number} head
 * @returns {Changes | null}
 */
export function changesOf(edits, site, head) {
  const mine = edits.filter((e) => e.site === site && (!("head" in e) || e.head === head));
  if (!mine.length) return null;
  /** @type {Changes} */
  const made = { temperature: null, unscaled: false, off: false, cells: [], scores: [] };
  for (const edit of mine) {
    if (edit.kind === "temperature") made.temperature = edit.value;
    if (edit.kind === "unscaled") made.unscaled = true;
    if (edit.kind === "ablate") made.off = true;
    if (edit.kind === "score") made.scores.push(edit);
    if (edit.kind === "forbid" || edit.kind === "allow") {
      made.cells.push({ ...edit, allowed: edit.kind === "allow" });
    }
  }
  return made;
}
