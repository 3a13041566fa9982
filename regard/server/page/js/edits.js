// Edits: what the reader has changed, as a list that can be undone, shared and sent to a model.
// Kinds and fields are those of the server's API; "mean" is its "ablate" to the mean.

/**
 * @typedef {{ kind: "temperature", site: string, head: number, value: number }
 *   | { kind: "unscaled", site: string }
 *   | { kind: "ablate", site: string, head: number }
 *   | { kind: "mean", site: string, head: number }
 *   | { kind: "forbid", site: string, head: number, query: number, key: number }
 *   | { kind: "allow", site: string, head: number, query: number, key: number }
 *   | { kind: "score", site: string, head: number, query: number, key: number, value: number }
 *   | { kind: "weight", site: string, head: number, query: number, key: number, value: number }
 *   | { kind: "token", side: string, position: number, token: string }} Edit
 */

/** Which fields a kind has, in the order in which they are written. */
const FIELDS = {
  temperature: ["site", "head", "value"],
  unscaled: ["site"],
  ablate: ["site", "head"],
  mean: ["site", "head"],
  forbid: ["site", "head", "query", "key"],
  allow: ["site", "head", "query", "key"],
  score: ["site", "head", "query", "key", "value"],
  weight: ["site", "head", "query", "key", "value"],
  token: ["side", "position", "token"],
};

/**
 * A list of edits in one line, for the address.
 * @param {Edit[]} edits
 */
export function writeEdits(edits) {
  return edits
    .map((edit) => [edit.kind, ...FIELDS[edit.kind].map((f) => encodeField(/** @type {any} */ (edit)[f]))].join(":"))
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
 * A field that holds none of the signs between fields.
 * @param {string | number} field
 */
function encodeField(field) {
  return typeof field === "number" ? field : field.replace(/[%:~&=#]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`);
}

/** @param {string} text */
function decodeField(text) {
  return text.replace(/%([0-9a-f]{2})/g, (_, code) => String.fromCharCode(parseInt(code, 16)));
}

/** How each field is read; undefined if it cannot be. */
/** @type {Record<string, (text: string) => string | number | undefined>} */
const FIELD_READERS = {
  site: (text) => text || undefined,
  side: (text) => (["source", "target"].includes(text) ? text : undefined),
  token: (text) => decodeField(text) || undefined,
  value: (text) => (text && Number.isFinite(Number(text)) ? Number(text) : undefined),
};

/** @param {string} text */
function count(text) {
  return /^\d+$/.test(text) ? Number(text) : undefined;
}

/**
 * @param {string} text
 * @returns {Edit | null}
 */
function readEdit(text) {
  const [kind, ...rest] = text.split(":");
  const fields = /** @type {Record<string, string[]>} */ (FIELDS)[kind];
  if (!fields || rest.length !== fields.length) return null;
  const named = fields.map((field, i) => [field, (FIELD_READERS[field] ?? count)(rest[i])]);
  return named.some(([, value]) => value === undefined) ? null : /** @type {Edit} */ ({ kind, ...Object.fromEntries(named) });
}

/**
 * Edits as the server knows them.
 * @param {Edit[]} edits
 */
export function editsToJson(edits) {
  return edits.map((edit) => (edit.kind === "mean" ? { ...edit, kind: "ablate", to: "mean" } : edit));
}

/**
 * The list with one more edit, which takes the place of those it makes void.
 * @param {Edit[]} edits
 * @param {Edit} edit
 * @returns {Edit[]}
 */
export function withEdit(edits, edit) {
  return [...edits.filter((one) => !isReplacedBy(one, edit)), edit];
}

/**
 * @param {Edit[]} edits
 * @param {Edit} edit
 */
export function withoutEdit(edits, edit) {
  return edits.filter((one) => !isReplacedBy(one, edit));
}

/** Kinds of which only one can hold. */
const EXCLUSIVE = [["forbid", "allow"], ["ablate", "mean"]];

/**
 * Whether an older edit speaks of the same thing as a newer one.
 * @param {any} older
 * @param {any} newer
 */
function isReplacedBy(older, newer) {
  if (older.kind !== newer.kind && !EXCLUSIVE.some((pair) => pair.includes(older.kind) && pair.includes(newer.kind))) return false;
  return ["site", "head", "query", "key", "side", "position"].every((field) => older[field] === newer[field]);
}

/**
 * What edits mean for one head; null if none of them concerns it.
 * @typedef {object} Changes
 * @property {number | null} temperature
 * @property {boolean} unscaled
 * @property {boolean} off
 * @property {boolean} mean whether every query gets the mean of all
 * @property {{ query: number, key: number, allowed: boolean }[]} cells
 * @property {{ query: number, key: number, value: number }[]} scores
 * @property {{ query: number, key: number, value: number }[]} weights
 */

/**
 * @param {Edit[]} edits
 * @param {string} site
 * @param {number} head
 * @returns {Changes | null}
 */
export function changesOf(edits, site, head) {
  const mine = edits.filter((e) => "site" in e && e.site === site && (!("head" in e) || e.head === head));
  if (!mine.length) return null;
  /** @type {Changes} */
  const changes = { temperature: null, unscaled: false, off: false, mean: false, cells: [], scores: [], weights: [] };
  for (const edit of mine) {
    if (edit.kind === "temperature") changes.temperature = edit.value;
    if (edit.kind === "unscaled") changes.unscaled = true;
    if (edit.kind === "ablate") changes.off = true;
    if (edit.kind === "mean") changes.mean = true;
    if (edit.kind === "score") changes.scores.push(edit);
    if (edit.kind === "weight") changes.weights.push(edit);
    if (edit.kind === "forbid" || edit.kind === "allow") {
      changes.cells.push({ ...edit, allowed: edit.kind === "allow" });
    }
  }
  return changes;
}
