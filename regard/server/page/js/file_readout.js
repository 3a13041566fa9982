// Lens and attributions that an offline file has; they were computed when it was written.

/**
 * @typedef {import("./source.js").Lens} Lens
 * @typedef {import("./source.js").Attribution} Attribution
 * @typedef {import("./source.js").Source} Source
 * @typedef {(name: string) => Promise<ArrayLike<number>>} Load
 */

/**
 * Return the functions of a source. After edits the words are unknown: a file has no model to run.
 * @param {any} about
 * @param {Load} load
 * @returns {Pick<Source, "lens" | "attribution">}
 */
export function readoutOf(about, load) {
  /** @type {Promise<Lens> | null} */
  let lens = null;
  return {
    lens: async (edits) => (edits.length ? null : (lens ??= readLens(about.lens, load))),
    attribution: async (edits, place) => (edits.length ? null : readAttribution(about, place, load)),
  };
}

/**
 * @param {any} described
 * @param {Load} load
 * @returns {Promise<Lens>}
 */
async function readLens(described, load) {
  const [stations, positions] = [described.stations.length, described.positions.length];
  const table = async (/** @type {string} */ name) => {
    const data = Array.from(await load(`readout.${name}`));
    return divide(data, stations).map((row) => divide(row, positions));
  };
  const flat = async (/** @type {string} */ name) => (await table(name)).map((row) => row.flat());
  const [probabilities, entropy, divergence, chosen] = await Promise.all([table("probabilities"), flat("entropy"), flat("divergence"), flat("answer_probabilities")]);
  return { ...described, probabilities, entropy, divergence, answer_probabilities: chosen, start: 0, n_positions: positions };
}

/**
 * Divide a list into parts of the same length.
 * @param {number[]} data
 * @param {number} count
 */
function divide(data, count) {
  const size = data.length / count;
  return Array.from({ length: count }, (_, i) => data.slice(i * size, (i + 1) * size));
}

/**
 * Return an attribution; that of a difference is the difference of both.
 * @param {any} about
 * @param {{ position?: number, token?: number, relative_to?: number }} place
 * @param {Load} load
 * @returns {Promise<Attribution | null>}
 */
async function readAttribution({ lens, labels, attributions }, place, load) {
  const position = place.position ?? 0;
  const found = attributions[position];
  if (!found) return null;
  const token = place.token ?? lens.answers[position];
  const [i, other] = [found.tokens.indexOf(token), found.tokens.indexOf(place.relative_to)];
  if (i < 0 || (place.relative_to !== undefined && other < 0)) return null;
  const rows = divide(Array.from(await load(`readout.parts.${position}`)), found.tokens.length);
  const less = (/** @type {number[]} */ numbers) => numbers[i] - (other < 0 ? 0 : numbers[other]);
  const parts = labels[found.labels].map((/** @type {any} */ [path, kind, head], /** @type {number} */ n) => ({ path, kind, head, value: rows[i][n] - (other < 0 ? 0 : rows[other][n]) }));
  const classes = lens.entries === "classes";
  return { entries: lens.entries, position: classes ? null : position, token, name: lens.names[token], relative_to: place.relative_to ?? null, logit: less(found.logits), bias: less(found.biases), parts };
}
