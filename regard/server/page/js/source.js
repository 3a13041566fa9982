// The data interface of the views. A Source is either an offline file with embedded data
// (file_source.js) or the local server (http_source.js).

/**
 * @typedef {import("./matrix.js").Matrix} Matrix
 */

/**
 * Description of the whole trace, loaded once.
 * @typedef {object} About
 * @property {string} title the model's name; may be ""
 * @property {string} family "transformer", "seq2seq", "encoder", "decoder", "vision" or ""
 * @property {boolean} live whether there is a model that can run with edits
 * @property {number} digits decimal places that are exact
 * @property {Record<string, string[]>} tokens by side: "source", "target", "output"
 * @property {Record<string, (number | null)[]>} words index of each token's word
 * @property {any} output the model's answer: trace.output in Python
 * @property {Selection} start the selection to start with
 * @property {Picture | null} image
 * @property {any} worked the matrices of the worked example
 * @property {any} edit_schema the JSON schema of edits
 */

/** @typedef {{ site: string, head: number, query: number, key: number }} Selection */

/**
 * An image: its grid of patches, and its pixels (three bytes each, row by row).
 * @typedef {object} Picture
 * @property {number} n_rows
 * @property {number} n_columns
 * @property {number} first the position of the first patch
 * @property {number} width
 * @property {number} height
 * @property {Uint8Array} rgb
 */

/** @typedef {{ entropy: number, distance: number, diagonal: number, peak: number, variety: number }} Measures */

/**
 * One attention site. `path` is its name in Python; sites of one `group` differ in the layer.
 * @typedef {object} Site
 * @property {string} path
 * @property {string} group "encoder.layers.*.self", …
 * @property {number | null} layer
 * @property {number} n_heads
 * @property {number} n_query
 * @property {number} n_key
 * @property {number} d_k
 * @property {number} d_v
 * @property {string | null} asks side of the queries; null if unknown
 * @property {string | null} answers side of the keys
 * @property {string | null} writes side that is being written: "output" in decoders
 * @property {string} similarity "scaled_dot", "dot", "alibi", "general", "cosine", "additive", …
 * @property {number} scale
 * @property {number[]} temperature by head
 * @property {number[] | null} slopes by head (ALiBi)
 * @property {string} mask the mask as Python prints it
 * @property {boolean} left_out whether the inputs of queries and keys were left out to save space
 * @property {boolean} rotary
 * @property {boolean | null} norm_first
 * @property {boolean} space whether its residual streams are known
 */

/**
 * Vectors and mask of one head.
 * @typedef {object} Vectors
 * @property {Matrix} query
 * @property {Matrix} key
 * @property {Matrix} value
 * @property {import("./attention.js").Mask} mask
 * @property {Matrix | null} compareQuery what is compared, if not the query itself
 * @property {Matrix | null} compareKey
 * @property {Float32Array | null} compareWeight of additive similarity
 * @property {Matrix | null} scores given if vectors do not determine them
 * @property {Matrix | null} weights likewise
 * @property {Matrix | null} context likewise
 */

/** @typedef {{ start: number, stop: number, bins: number }} Span a range of positions, and the number of bins */

/** @typedef {"scores" | "masked" | "weights"} Stage */

/** @typedef {{ weight: Matrix, bias: Float32Array | null }} Projection output × input */

/**
 * Streams before and after attention for one query and one key; null if unknown.
 * @typedef {object} Streams
 * @property {Float32Array | null} queryInput
 * @property {Float32Array | null} keyInput
 * @property {Float32Array | null} joined the context vectors of all heads, concatenated
 * @property {Float32Array | null} output
 * @property {Float32Array | null} before the residual stream before the sub-layer
 * @property {Float32Array | null} after
 * @property {{ query: Projection, key: Projection, value: Projection, output: Projection } | null}
 *   projections this head's rows; "output" is that of all heads
 * @property {(() => Promise<Streams["projections"]>) | null} [later] loads large
 *   projections when the reader points at a number
 */

/**
 * @typedef {object} Space
 * @property {Matrix} before token × axis
 * @property {Matrix} after
 * @property {Matrix[]} arrows what each head adds; empty if the model's weights are unknown
 * @property {Matrix} rest the bias of the output projection
 * @property {number[]} share of the variance by axis
 */

/**
 * One head after a run with edits.
 * @typedef {object} EditedHead
 * @property {Vectors} vectors
 * @property {import("./head.js").Tables} tables
 * @property {(query: number, key: number) => Promise<Streams>} steps
 */

/** @typedef {{ name: string, probability: number, text?: string | null }} Candidate */

/**
 * A model that can run with edits.
 * @typedef {object} Model
 * @property {(edits: import("./edits.js").Edit[], signal?: AbortSignal) => Promise<any>} answer
 *   the answer after edits
 * @property {(edits: import("./edits.js").Edit[]) => Promise<{ answer: any, final: boolean } | null>} effect
 *   the effect on the same answer, and whether it is final; null if newer edits were requested meanwhile
 * @property {(edits: import("./edits.js").Edit[], path: string, head: number) => Promise<EditedHead | null>} headAfter
 *   a head after edits anywhere in the model, for the same answer
 * @property {(temperature: number) => Promise<Candidate[] | null>} next
 *   next-token candidates; null if another temperature was requested meanwhile
 * @property {(position: number) => Promise<any[]>} alternatives
 *   other words for a position of a translation
 */

/**
 * @typedef {object} Source
 * @property {() => Promise<About>} about
 * @property {() => Promise<Site[]>} sites in the order of computation
 * @property {(path: string, head: number) => Promise<Vectors>} vectors
 * @property {(path: string, head: number, stage: Stage, rows: Span, columns: Span) => Promise<Matrix>} tile
 *   part of a table, max-pooled if there are fewer bins than positions
 * @property {(path: string, size: number) => Promise<Matrix[]>} thumbnails
 *   one per head, at most size × size, mean-pooled
 * @property {(path: string, head: number, query: number, key: number) => Promise<Streams>} steps
 * @property {(path: string, edits: import("./edits.js").Edit[]) => Promise<Space | null>} space
 *   up to three principal axes; after edits if there is a model
 * @property {(path: string, edits: import("./edits.js").Edit[]) => Promise<Matrix | null>} rollout
 *   through all layers up to this one; after edits if there is a model
 * @property {(path: string, head: number) => Promise<Matrix | null>} exact
 *   the weights that an efficient form approximates
 * @property {(path: string) => Promise<Measures[]>} measures of every head
 * @property {Model | null} model null in offline files
 */

export const STAGES = /** @type {const} */ (["scores", "masked", "weights"]);

/**
 * Parse a temperature: JSON has no infinity, so Python writes "inf".
 * @param {number | "inf"} heat
 */
export function parseTemperature(heat) {
  return heat === "inf" ? Infinity : heat;
}
