// What the open head is compared with, its text form in the address, and which tokens correspond.

/**
 * The second side of a comparison. Fields that are left out are those of the first side.
 * @typedef {object} Comparison
 * @property {"text" | "image" | "model" | "head" | "run" | "edited"} kind
 * @property {string} [text]
 * @property {string} [image] as in a request: "example:3" or the name of an upload
 * @property {string} [model]
 * @property {string} [site] with `head`: another head of the same run
 * @property {number} [head]
 * @property {string} [run] a training run, with the number of a step and of one of its texts
 * @property {number} [step]
 * @property {number} [item]
 * @property {boolean} [difference] whether one grid shows the difference
 */

export const KINDS = /** @type {const} */ (["text", "image", "model", "head", "run", "edited"]);
const NUMBERS = ["head", "step", "item"];
const TEXTS = ["text", "image", "model", "site", "run"];

/**
 * Return a comparison as text for the address.
 * @param {Comparison} spec
 */
export function writeComparison(spec) {
  const given = Object.entries(spec).filter(([, value]) => value !== undefined && value !== false);
  return new URLSearchParams(given.map(([name, value]) => [name, value === true ? "1" : String(value)])).toString();
}

/**
 * Parse a comparison; null if the text is empty or not valid.
 * @param {string} text
 * @returns {Comparison | null}
 */
export function readComparison(text) {
  const given = new URLSearchParams(text);
  const kind = KINDS.find((one) => one === given.get("kind"));
  if (!kind) return null;
  /** @type {Record<string, any>} */
  const made = { kind };
  for (const name of TEXTS) if (given.get(name)) made[name] = given.get(name);
  for (const name of NUMBERS) if (/^\d+$/.test(given.get(name) ?? "")) made[name] = Number(given.get(name));
  if (given.get("difference") === "1") made.difference = true;
  return /** @type {Comparison} */ (made);
}

/**
 * Return the model and the number of an example in a request, "example:3" or "example:MODEL/3"; no number for other images.
 * @param {string | undefined} image
 * @param {string | undefined} model whose example it is, if it names none
 */
export function exampleOf(image, model) {
  const [, owner = model, number] = /^example:(?:(.+)\/)?(\d+)$/.exec(image ?? "") ?? [];
  return { owner, number };
}

/**
 * Return the name of an image in a request to another model, which has other examples.
 * @param {string | undefined} image
 * @param {string} model whose example it is
 * @param {string} other
 */
export function imageFor(image, model, other) {
  const { owner, number } = exampleOf(image, model);
  if (number === undefined) return image;
  return owner === other ? `example:${number}` : `example:${owner}/${number}`;
}

/**
 * Positions of one side for those of the other, −1 where there is none.
 * @typedef {{ by: "position" | "token", to: number[], from: number[] }} Matching
 */

/** Longer texts are matched by position: the table of the alignment would be too large. */
const MAX_TABLE = 4_000_000;

/**
 * Match two lists: by position if they have the same length, otherwise equal entries in the same order.
 * @param {string[]} a
 * @param {string[]} b
 * @returns {Matching}
 */
export function correspond(a, b) {
  if (a.length !== b.length && a.length * b.length <= MAX_TABLE) return { by: "token", ...alignEqual(a, b) };
  const both = (/** @type {number} */ n, /** @type {number} */ other) => Array.from({ length: n }, (_, i) => (i < other ? i : -1));
  return { by: "position", to: both(a.length, b.length), from: both(b.length, a.length) };
}

/**
 * Align two lists by their longest common subsequence.
 * @param {string[]} a
 * @param {string[]} b
 */
export function alignEqual(a, b) {
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const at = i * width + j;
      longest[at] = a[i] === b[j] ? longest[at + width + 1] + 1 : Math.max(longest[at + width], longest[at + 1]);
    }
  }
  const [to, from] = [a.map(() => -1), b.map(() => -1)];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) {
      to[i] = j;
      from[j++] = i++;
    } else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i++;
    else j++;
  }
  return { to, from };
}

/**
 * Return the difference of two tables of the same shape, second − first; NaN where one is −∞.
 * @param {import("./matrix.js").Matrix} first
 * @param {import("./matrix.js").Matrix} second
 * @returns {import("./matrix.js").Matrix}
 */
export function differenceOf(first, second) {
  const data = Float32Array.from(second.data, (x, at) => {
    const change = x - first.data[at];
    return Number.isFinite(change) ? change : NaN;
  });
  return { ...first, data };
}
