// Edits of the reader: a list that can be undone, shared in the address and sent to a model.
// Kinds and fields are those of Python's JSON schema; "mean" is "ablate" with to="mean".

/**
 * @typedef {{ kind: "temperature", site: string, head: number, value: number }
 *   | { kind: "unscaled", site: string }
 *   | { kind: "ablate", site: string, head: number }
 *   | { kind: "mean", site: string, head: number }
 *   | { kind: "forbid", site: string, head: number, query: number, key: number }
 *   | { kind: "allow", site: string, head: number, query: number, key: number }
 *   | { kind: "score", site: string, head: number, query: number, key: number, value: number }
 *   | { kind: "weight", site: string, head: number, query: number, key: number, value: number }
 *   | { kind: "patch", path: string, source: Record<string, any>, head?: number, position?: number, query?: number }
 *   | { kind: "token", side: string, position: number, token: string }} Edit
 */

/** The order of fields in the address; others follow in the order of the schema. */
const ORDER = ["site", "side", "head", "query", "key", "position", "value", "token"];

/** The fields of each kind and their schemas, in the order in which the address has them. */
/** @type {Record<string, [string, any][]>} */
const fieldsOf = {};

/**
 * Read the kinds of edits and their fields from the JSON schema.
 * @param {{ oneOf: { title: string, properties: Record<string, any> }[] }} schema
 */
export function useSchema(schema) {
  const rank = (/** @type {string} */ name) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
  for (const { title, properties } of schema.oneOf) {
    const fields = Object.entries(properties).filter(([name, field]) => name !== "kind" && !(field.enum && "default" in field));
    fieldsOf[title] = fields.sort(([a], [b]) => rank(a) - rank(b));
  }
  fieldsOf.mean = fieldsOf.ablate;
}

/**
 * Return edits as text for the address.
 * @param {Edit[]} edits
 */
export function writeEdits(edits) {
  return edits
    .map((edit) => [edit.kind, ...fieldsOf[edit.kind].map(([name]) => encodeField(/** @type {any} */ (edit)[name]))].join(":"))
    .join("~");
}

/**
 * Parse edits from an address; entries that are not valid are skipped.
 * @param {string} text
 * @returns {Edit[]}
 */
export function readEdits(text) {
  return text.split("~").map(readEdit).filter((edit) => edit !== null);
}

/**
 * Return the path of the site that an edit changes; "" for replaced tokens.
 * @param {Edit} edit
 */
export function editedSite(edit) {
  if (edit.kind === "patch") return edit.path.slice(0, edit.path.lastIndexOf("."));
  return "site" in edit ? edit.site : "";
}

/**
 * Escape the separators of the address; only patches leave fields out or have objects.
 * @param {string | number | object | undefined} field
 */
function encodeField(field) {
  if (typeof field === "number" || field === undefined) return field ?? "";
  const text = typeof field === "object" ? JSON.stringify(field) : field;
  return text.replace(/[%:~&=#]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`);
}

/** @param {string} text */
function decodeField(text) {
  return text.replace(/%([0-9a-f]{2})/g, (_, code) => String.fromCharCode(parseInt(code, 16)));
}

/**
 * Parse a field; undefined if the text is not valid.
 * @param {any} schema
 * @param {string} text
 */
function readField(schema, text) {
  if (schema.enum) return schema.enum.includes(text) ? text : undefined;
  if (schema.type === "integer") return readCount(text);
  if (schema.type === "object") return readObject(decodeField(text));
  if (schema.type === "number" || schema.anyOf) return text && Number.isFinite(Number(text)) ? Number(text) : undefined;
  return decodeField(text) || undefined;
}

/** @param {string} text */
function readObject(text) {
  try {
    const made = JSON.parse(text);
    return made && typeof made === "object" && !Array.isArray(made) ? made : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Parse a number that is not negative.
 * @param {string} text
 */
export function readCount(text) {
  return /^\d+$/.test(text) ? Number(text) : undefined;
}

/**
 * @param {string} text
 * @returns {Edit | null}
 */
function readEdit(text) {
  const [kind, ...rest] = text.split(":");
  const fields = Object.hasOwn(fieldsOf, kind) ? fieldsOf[kind] : null;
  if (rest.length !== fields?.length) return null;
  const given = fields.map(([name, schema], i) => ({ name, schema, text: rest[i] })).filter(({ schema, text }) => kind !== "patch" || text || !("default" in schema));
  const named = given.map(({ name, schema, text }) => [name, readField(schema, text)]);
  return named.some(([, value]) => value === undefined) ? null : /** @type {Edit} */ ({ kind, ...Object.fromEntries(named) });
}

/**
 * Return edits as the server's JSON.
 * @param {Edit[]} edits
 */
export function editsToJson(edits) {
  return edits.map((edit) => (edit.kind === "mean" ? { ...edit, kind: "ablate", to: "mean" } : edit));
}

/**
 * Return the list with one more edit, which replaces older edits of the same thing.
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

/** Kinds that exclude each other. */
const EXCLUSIVE = [["forbid", "allow"], ["ablate", "mean"]];

/**
 * Return whether a newer edit replaces an older one.
 * @param {any} older
 * @param {any} newer
 */
function isReplacedBy(older, newer) {
  if (older.kind !== newer.kind && !EXCLUSIVE.some((pair) => pair.includes(older.kind) && pair.includes(newer.kind))) return false;
  return ["site", "path", "head", "query", "key", "side", "position"].every((field) => older[field] === newer[field]);
}

/**
 * The edits of one head, by what they change.
 * @typedef {object} Changes
 * @property {number | null} temperature
 * @property {boolean} unscaled
 * @property {boolean} off
 * @property {boolean} mean whether every query gets the mean over all queries
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
