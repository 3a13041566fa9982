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
 * @property {any} [readout] lens and attributions of a file
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
 * @property {(edits: import("./edits.js").Edit[], query: Record<string, any>) => Promise<{ info: Decoding, source: Source | null }>} decode
 *   how the answer is written, and the trace of what is written; null if it cannot be traced
 */

/**
 * One step of decoding: the most probable tokens, and the id of the one that was written.
 * @typedef {object} DecodingStep
 * @property {number} chosen
 * @property {string} name
 * @property {boolean} forced whether the reader chose it
 * @property {{ id: number, name: string, rank: number, log_prob: number, scaled: number | null, cut: "" | "top_k" | "top_p", probability: number }[]} candidates
 */

/** @typedef {{ step: number, parent: number | null, id: number, name: string, log_prob: number, score: number, fate: string, won: boolean }} TreeNode */

/**
 * How a text was written; see DecodingInfo in Python.
 * @typedef {object} Decoding
 * @property {"beam" | "sample" | "given"} kind
 * @property {string} text
 * @property {number[]} ids
 * @property {boolean} finished
 * @property {DecodingStep[]} steps
 * @property {TreeNode[] | null} tree
 * @property {boolean} is_answer
 * @property {boolean} traceable
 */

/**
 * A place where the residual stream can be read. `path` is the value of the trace.
 * @typedef {object} Station
 * @property {string} path
 * @property {number} width of the vectors
 * @property {"tokens" | "embedding" | "self" | "cross" | "context" | "feed_forward" | "recurrent" | "output"} kind
 * @property {number | null} layer
 * @property {string | null} site the attention site just before it
 * @property {string | null} before path of the station before it
 * @property {string[]} added paths of what was added since then
 * @property {boolean} normalized whether a norm follows the sum
 */

/** @typedef {{ name: "encoder" | "decoder", tokens: string, n_tokens: number, stations: Station[] }} FlowSide */

/**
 * The largest weights of each query of a site: `mean` over heads, and `top` of single heads.
 * @typedef {{ keys: Matrix, weights: Matrix, heads: Matrix | null }} FlowLines
 */

/**
 * The numbers of some positions of a side, by path of the station or site.
 * @typedef {object} FlowRows
 * @property {number} start
 * @property {number} stop
 * @property {Record<string, Float32Array>} norm of the stream
 * @property {Record<string, Float32Array>} added norm of what was added to it
 * @property {Record<string, Matrix>} strip the stream, as means of neighboring dimensions
 * @property {Record<string, { mean: FlowLines, top: FlowLines }>} lines
 * @property {Candidate[][] | null} predictions the most probable tokens at each position
 */

/** @typedef {{ index: number, activation: number, norm: number, written: { name: string, amount: number }[] }} HiddenUnit */
/** @typedef {{ n_units: number, n_active: number, writes: "logits" | "dimensions", units: HiddenUnit[] }} HiddenUnits */

/**
 * The residual stream of a trace.
 * @typedef {object} Flow
 * @property {FlowSide[]} sides
 * @property {string | null} predicts the side whose positions predict tokens
 * @property {number} limit positions that can be requested at once
 * @property {(side: FlowSide, start: number, stop: number) => Promise<FlowRows>} rows
 * @property {(path: string, position: number) => Promise<Record<string, Float32Array> | null>} vector
 *   "vector", the one "before" it, and what was added by path; null if the file does not have them
 * @property {(path: string, position: number) => Promise<HiddenUnits | null>} units
 */

/**
 * What the model would predict if it stopped at a station: tables of station × position (× rank).
 * @typedef {object} Lens
 * @property {"tokens" | "classes"} entries
 * @property {"layer" | "rms" | "none"} norm the final norm that was applied
 * @property {string[]} stations
 * @property {string[]} positions tokens that are read; of the window
 * @property {number} start the first position of the window
 * @property {number} n_positions of the whole text
 * @property {number[][][]} ids
 * @property {number[][][]} probabilities
 * @property {number[][]} entropy in bits
 * @property {number[][]} divergence from the final distribution, in bits
 * @property {number[]} answers
 * @property {number[][]} answer_probabilities
 * @property {Record<number, string>} names
 */

/**
 * @typedef {{ path: string, kind: "embedding" | "head" | "bias" | "attention" | "feed_forward" | "norm" | "readout" | "edit", head: number | null, value: number }} AttributionPart
 */

/**
 * The logit of a word as a sum of parts.
 * @typedef {object} Attribution
 * @property {"tokens" | "classes"} entries
 * @property {number | null} position null for classes
 * @property {number} token
 * @property {string} name
 * @property {number | null} relative_to the token whose logit was subtracted
 * @property {number} logit
 * @property {number} bias
 * @property {AttributionPart[]} parts they sum to logit - bias
 */

/**
 * Changes of the answer's log-probability with one head off: head × token by site.
 * @typedef {object} Sweep
 * @property {string[]} tokens the answer
 * @property {(number | null)[]} positions where each token is predicted; null for classes
 * @property {number[]} log_probabilities with all heads on
 * @property {Record<string, number[][]>} changes
 */

/** @typedef {{ models: { name: string, reads: "text" | "image", examples: { image?: string, name?: string }[] }[], runs: import("./replay.js").Run[] }} OtherRuns */

/**
 * @typedef {object} Source
 * @property {(edits: import("./edits.js").Edit[]) => Promise<Flow | null>} flow
 *   the residual stream, after edits if there is a model; null if the source does not have it
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
 * @property {(edits: import("./edits.js").Edit[], position: number) => Promise<Lens | null>} [lens]
 *   the window that contains a position; null if it is not known after edits
 * @property {(edits: import("./edits.js").Edit[], place: { position?: number, token?: number, relative_to?: number }) => Promise<Attribution | null>} [attribution]
 *   of the answer at a position by default; null if it is not known after edits
 * @property {(spec: import("./compare_spec.js").Comparison) => Promise<Source | null>} [other]
 *   the run on the second side of a comparison; only with a server
 * @property {(file: Blob) => Promise<string>} [upload] send an image and return its name; only with a server
 * @property {() => Promise<OtherRuns>} [choices] models and training runs to compare with; only with a server
 * @property {(options: { signal?: AbortSignal, onProgress?: (progress: import("./http.js").Progress) => void }) => Promise<Sweep>} [sweep]
 *   switch every head off in turn; only with a model
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
