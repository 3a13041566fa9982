// Where the views get their numbers from. Every host has one Source: a page that holds its data
// itself (file_source.js), the local server (http_source.js). Views know nothing else.

/**
 * @typedef {import("./matrix.js").Matrix} Matrix
 */

/**
 * What is known of the whole trace; small, and asked for once.
 * @typedef {object} About
 * @property {string} title the model's name; may be ""
 * @property {string} family "transformer", "seq2seq", "encoder", "decoder", "vision" or ""
 * @property {boolean} live whether a model stands behind the source: it can run and be edited
 * @property {number} digits how many digits behind the point its numbers are good for
 * @property {Record<string, string[]>} tokens by side: "source", "target", "output"
 * @property {Record<string, (number | null)[]>} words the number of each token's word
 * @property {any} output the model's answer, as Python's trace.output has it
 * @property {Selection} start where a reader should begin
 * @property {Picture | null} image
 * @property {any} worked the matrices of the worked example, as Python's DEFAULT has them
 */

/** @typedef {{ site: string, head: number, query: number, key: number }} Selection */

/**
 * How patches lie on an image, and its pixels: three bytes each, row by row.
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
 * @property {string | null} asks the side whose tokens ask; null if the trace does not know
 * @property {string | null} answers
 * @property {string | null} writes the side that is being written: "output" in decoders
 * @property {string} similarity "scaled_dot", "dot", "alibi", "general", "cosine", "additive", …
 * @property {number} scale
 * @property {number[]} temperature by head
 * @property {number[] | null} slopes by head (ALiBi)
 * @property {string} mask the mask in Python's words
 * @property {boolean} left_out whether what queries and keys are made of was left out to save room
 * @property {boolean} rotary
 * @property {boolean | null} norm_first
 * @property {boolean} space whether it is known what stands before and after it
 */

/**
 * What one head compares and mixes.
 * @typedef {object} Vectors
 * @property {Matrix} query
 * @property {Matrix} key
 * @property {Matrix} value
 * @property {import("./attention.js").Mask} mask
 * @property {Matrix | null} compareQuery what is compared where it is not the query itself
 * @property {Matrix | null} compareKey
 * @property {Float32Array | null} compareWeight of additive similarity
 * @property {Matrix | null} scores given where vectors do not determine them
 * @property {Matrix | null} weights likewise
 * @property {Matrix | null} context likewise
 */

/** @typedef {{ start: number, stop: number, bins: number }} Span positions, and into how many cells */

/** @typedef {"scores" | "masked" | "weights"} Stage */

/** @typedef {{ weight: Matrix, bias: Float32Array | null }} Projection output × input */

/**
 * What stands before and after attention for one query and one key; null where it is not known.
 * @typedef {object} Streams
 * @property {Float32Array | null} queryInput
 * @property {Float32Array | null} keyInput
 * @property {Float32Array | null} joined the contexts of all heads, side by side
 * @property {Float32Array | null} output
 * @property {Float32Array | null} before the residual stream before the sub-layer
 * @property {Float32Array | null} after
 * @property {{ query: Projection, key: Projection, value: Projection, output: Projection } | null}
 *   projections this head's rows; "output" is that of all heads
 * @property {(() => Promise<Streams["projections"]>) | null} [later] gets the projections where they
 *   are large: once somebody asks where a number comes from
 */

/**
 * @typedef {object} Space
 * @property {Matrix} before token × axis
 * @property {Matrix} after
 * @property {Matrix[]} arrows what each head adds; none where the model's weights are not known
 * @property {Matrix} rest what no head adds: the bias of the last linear layer
 * @property {number[]} share how much of the spread each axis shows
 */

/**
 * One head of a model that has run with edits.
 * @typedef {object} EditedHead
 * @property {Vectors} vectors
 * @property {import("./head.js").Tables} tables
 * @property {(query: number, key: number) => Promise<Streams>} steps
 */

/** @typedef {{ name: string, probability: number, text?: string | null }} Candidate */

/**
 * A model that can be asked what edits do.
 * @typedef {object} Model
 * @property {(edits: import("./edits.js").Edit[], signal?: AbortSignal) => Promise<any>} answer
 *   what it answers after edits
 * @property {(edits: import("./edits.js").Edit[]) => Promise<{ answer: any, final: boolean } | null>} effect
 *   what edits do at once, and whether that is all; null if newer edits were asked for meanwhile
 * @property {(edits: import("./edits.js").Edit[], path: string, head: number) => Promise<EditedHead | null>} headAfter
 *   a head after edits anywhere in the model, what was written staying the same
 * @property {(temperature: number) => Promise<Candidate[] | null>} next
 *   what may come next; null if another temperature was asked for meanwhile
 * @property {(position: number) => Promise<any[]>} alternatives
 *   what else could stand at a position of a translation
 */

/**
 * @typedef {object} Source
 * @property {() => Promise<About>} about
 * @property {() => Promise<Site[]>} sites in the order of computation
 * @property {(path: string, head: number) => Promise<Vectors>} vectors
 * @property {(path: string, head: number, stage: Stage, rows: Span, columns: Span) => Promise<Matrix>} tile
 *   part of a table, pooled by the largest where there are fewer bins than positions
 * @property {(path: string, size: number) => Promise<Matrix[]>} thumbnails
 *   one for each head, at most size × size, pooled by the mean
 * @property {(path: string, head: number, query: number, key: number) => Promise<Streams>} steps
 * @property {(path: string, edits: import("./edits.js").Edit[]) => Promise<Space | null>} space
 *   in three axes, or two of two numbers; after edits where there is a model to ask
 * @property {(path: string, edits: import("./edits.js").Edit[]) => Promise<Matrix | null>} rollout
 *   through all layers up to this one; after edits where there is a model to ask
 * @property {(path: string, head: number) => Promise<Matrix | null>} exact
 *   the weights that an efficient form approximates
 * @property {(path: string) => Promise<Measures[]>} measures of every head
 * @property {Model | null} model null where there is none to ask
 */

export const STAGES = /** @type {const} */ (["scores", "masked", "weights"]);
