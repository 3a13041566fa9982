// Lessons on what a model reads: tokens, embeddings, positions, and the RNN with attention.

import { SENTENCES } from "../lesson_messages.js";
import { short } from "../format.js";
import { cosine, entropy, flowSide, hasMoved, indexOfLargest, keyOptions, norm, PLAIN, positionOf, siteLike, strongest, tablesAt, ticksOfSite, vectorsOf, wordsOf } from "./parts.js";

/**
 * @typedef {import("./parts.js").App} App
 * @typedef {import("./parts.js").Lesson} Lesson
 */

const ENCODER = /^encoder\.layers\.\d+\.self$/;
const EMBEDDING = "encoder.embedding.tokens";
const POSITIONS = "encoder.embedding.positions";
/** A word is cut finely if it becomes at least so many pieces. */
const MANY_PIECES = 3;
/** The step of a date at which the RNN writes the first digit of the month. */
const MONTH = 5;

/** @type {Lesson} */
const TOKENS = {
  name: "Tokens",
  title: "lessonTokens",
  models: ["en-de", "en-ko"],
  text: SENTENCES.snake,
  facts: (app) => ({ words: textWords(app).length, pieces: textWords(app).reduce((sum, word) => sum + word.pieces.length, 0) }),
  steps: [
    {
      text: "lessonTokens1",
      figure: "pieces",
      set: () => PLAIN,
      guess: {
        ask: "lessonTokensAsk",
        options: async (app) => textWords(app).filter(({ text }) => text.length > 1).map(({ text, pieces }) => ({ label: text, value: pieces.length, side: "source", at: pieces[0] })),
        reveal: "lessonTokensReveal",
      },
    },
    { text: "lessonTokens2", figure: "pieces", own: { mark: "whole" }, set: () => PLAIN },
    { text: "lessonTokens3", figure: "pieces", own: { mark: "joined" }, set: () => PLAIN },
  ],
  task: {
    text: () => "lessonTokensDo",
    figure: "pieces",
    set: () => PLAIN,
    done: (app, { first, sources }) => first !== null && sources.size > 1 && longestWord(app).pieces.length >= MANY_PIECES,
    closing: async (app) => {
      const words = textWords(app);
      const longest = longestWord(app);
      return { text: "lessonTokensEnd", values: { words: words.length, pieces: words.reduce((sum, word) => sum + word.pieces.length, 0), longest: longest.text, n: longest.pieces.length } };
    },
  },
};

/** @param {App} app */
function textWords(app) {
  return wordsOf(app, "source").filter(({ special, text }) => !special && /[\p{L}\p{N}]/u.test(text));
}

/** @param {App} app */
function longestWord(app) {
  return textWords(app).reduce((best, word) => (word.pieces.length > best.pieces.length ? word : best), { pieces: /** @type {number[]} */ ([]), text: "", special: false });
}

/**
 * Return the embeddings of the source.
 * @param {App} app
 */
function embeddings(app) {
  return vectorsOf(app, EMBEDDING, app.about.tokens.source?.length ?? 0);
}

/**
 * Return the selection of two source tokens by their labels.
 * @param {App} app
 * @param {string} query
 * @param {string} key
 */
function sourcePair(app, query, key) {
  const site = siteLike(app, ENCODER);
  const { rows } = ticksOfSite(app, site);
  return { ...PLAIN, site: site.path, head: 0, query: positionOf(rows, query), key: rows.findLastIndex((tick) => tick.label === key), pinned: true };
}

/** @type {Lesson} */
const EMBEDDINGS = {
  name: "Embeddings",
  title: "lessonEmbeddings",
  models: ["en-de", "en-ko"],
  text: SENTENCES.garden,
  facts: async (app) => ({ d: (await embeddings(app))[0]?.length ?? 0 }),
  steps: [
    { text: "lessonEmbeddings1", figure: "embeddings", set: (app) => sourcePair(app, "The", "The") },
    {
      text: "lessonEmbeddings2",
      figure: "embeddings",
      set: (app) => sourcePair(app, "dog", "cat"),
      guess: {
        ask: "lessonEmbeddingsAsk",
        options: async (app) => {
          const { rows } = ticksOfSite(app, siteLike(app, ENCODER));
          const vectors = await embeddings(app);
          const dog = positionOf(rows, "dog");
          return rows.flatMap(({ label, special }, i) => (special || i === dog || !/\p{L}/u.test(label) ? [] : [{ label, value: cosine(vectors[dog], vectors[i]), side: "source", at: i }]));
        },
        reveal: "lessonEmbeddingsReveal",
      },
    },
    { text: "lessonEmbeddings3", figure: "embeddings", set: (app) => sourcePair(app, "the", "the") },
  ],
  task: {
    text: () => "lessonEmbeddingsDo",
    figure: "embeddings",
    set: (app) => sourcePair(app, "dog", "cat"),
    done: (app, { own, first }) => hasMoved(app.store.state, first, ["query", "key"]) && own.cosine < 0,
    closing: async (app) => {
      const { rows } = ticksOfSite(app, siteLike(app, ENCODER));
      const vectors = await embeddings(app);
      const { query, key } = app.store.state;
      const [dog, cat] = [positionOf(rows, "dog"), positionOf(rows, "cat")];
      return { text: "lessonEmbeddingsEnd", values: { a: rows[query].label, b: rows[key].label, x: short(cosine(vectors[query], vectors[key])), y: short(cosine(vectors[dog], vectors[cat])) } };
    },
  },
};

/** The position whose neighbors the reader guesses. */
const HERE = 10;
const OTHERS = [2, 9, 15, 20];

/**
 * Return the settings of the figure of waves: its wavelength is known once it is drawn.
 * @param {number} dimension
 */
function waveOf(dimension) {
  return { dimension, wavelength: 0 };
}

/** @type {Lesson} */
const POSITIONAL = {
  name: "Positions",
  title: "lessonPositions",
  models: ["en-de", "en-ko"],
  text: SENTENCES.long,
  facts: async (app) => ({ d: (await vectorsOf(app, POSITIONS, 1))[0].length, n: app.about.tokens.source?.length ?? 0, here: HERE }),
  steps: [
    { text: "lessonPositions1", figure: "waves", own: waveOf(8), set: () => PLAIN },
    { text: "lessonPositions2", figure: "waves", own: waveOf(24), set: () => PLAIN },
    {
      text: "lessonPositions3",
      figure: "waves",
      own: waveOf(48),
      set: () => PLAIN,
      guess: {
        ask: "lessonPositionsAsk",
        options: async (app) => {
          const vectors = await vectorsOf(app, POSITIONS, app.about.tokens.source?.length ?? 0);
          return OTHERS.filter((i) => i < vectors.length).map((i) => ({ label: String(i), value: cosine(vectors[HERE], vectors[i]) }));
        },
        reveal: "lessonPositionsReveal",
      },
    },
  ],
  task: {
    text: () => "lessonPositionsDo",
    figure: "waves",
    own: waveOf(8),
    set: () => PLAIN,
    done: (app, { own }) => own.wavelength > (app.about.tokens.source?.length ?? 0),
    closing: async (app, { own }) => {
      const n = app.about.tokens.source?.length ?? 0;
      const vectors = await vectorsOf(app, POSITIONS, n);
      const i = Number(own.dimension);
      return { text: "lessonPositionsEnd", values: { i, w: short(own.wavelength, 1), n, a: short(vectors[0][i]), b: short(vectors[n - 1][i]) } };
    },
  },
};

/**
 * Return the selection of a step of the decoder.
 * @param {App} app
 * @param {number} query
 */
async function decoderStep(app, query) {
  return { ...PLAIN, ...(await strongest(app, siteLike(app, /cross$/), 0, query)) };
}

/** @type {Lesson} */
const RECURRENT = {
  name: "Recurrent",
  title: "lessonRecurrent",
  models: ["dates"],
  text: SENTENCES.date,
  fits: ({ about }) => about.live && about.family === "seq2seq" && Boolean(about.tokens.source),
  facts: (app) => {
    const site = siteLike(app, /cross$/);
    return { n: site.n_key, d: site.d_k };
  },
  steps: [
    { text: "lessonRecurrent1", set: () => ({ ...PLAIN, page: "flow" }) },
    { text: "lessonRecurrent2", figure: "bahdanau", own: { mark: "12" }, set: (app) => decoderStep(app, 0) },
    {
      text: "lessonRecurrent3",
      figure: "bahdanau",
      own: { mark: "34" },
      set: (app) => decoderStep(app, MONTH),
      guess: {
        ask: "lessonRecurrentAsk",
        options: async (app) => {
          const site = siteLike(app, /cross$/);
          return keyOptions(app, site, (await tablesAt(app, site, 0, MONTH)).weights.data);
        },
        reveal: "lessonRecurrentReveal",
      },
    },
    { text: "lessonRecurrent4", figure: "bahdanau", own: { mark: "34" }, set: (app) => decoderStep(app, MONTH) },
    { text: "lessonRecurrent5", figure: "bahdanau", own: { mark: "56" }, set: (app) => decoderStep(app, MONTH) },
  ],
  task: {
    text: () => "lessonRecurrentDo",
    figure: "bahdanau",
    set: (app) => decoderStep(app, MONTH),
    done: ({ store }, { first }) => hasMoved(store.state, first, ["query"]),
    closing: async (app) => {
      const { query } = app.store.state;
      const site = siteLike(app, /cross$/);
      const { rows, columns } = ticksOfSite(app, site);
      const tables = await tablesAt(app, site, 0, query);
      const best = indexOfLargest(tables.weights.data);
      const context = (await flowSide(app, "decoder"))?.side.stations.find(({ kind }) => kind === "context");
      const size = context ? norm((await vectorsOf(app, context.path, query + 1))[query]) : 0;
      const values = { token: rows[query].label, key: columns[best].label, w: short(tables.weights.data[best]), e: short(tables.scores?.data[best] ?? 0), h: short(entropy(tables.weights.data), 2), c: short(size, 2) };
      return { text: "lessonRecurrentEnd", values };
    },
  },
};

export const READING_LESSONS = [TOKENS, EMBEDDINGS, POSITIONAL, RECURRENT];
