// Training replay: the panes show the traces of one run, checkpoint by checkpoint.

import { start } from "./app.js";
import { requestJson } from "./http.js";
import { HttpSource } from "./http_source.js";
import { messagesFor } from "./messages.js";
import { pageAddress } from "./state.js";
import { replayBar } from "./views/replay_bar.js";
import { showNothing, skeleton } from "./views/skeleton.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {{ step: number, epoch: number | null, loss: number | null, score: number | null, scores: Record<string, number> }} Checkpoint
 * @typedef {{ name: string, models: string[], texts: string[], metric: string, checkpoints: Checkpoint[] }} Run
 */

/**
 * State and actions of the replay bar.
 * @typedef {object} Replay
 * @property {Run[]} runs
 * @property {Run} run
 * @property {number} text
 * @property {number} at index of the checkpoint
 * @property {boolean} playing
 * @property {unknown} error of the last request; null if it succeeded
 * @property {(parts: { text?: number, at?: number }) => Promise<void>} go
 * @property {(playing: boolean) => void} play
 * @property {(() => void) | undefined} onchange called when the state has changed
 */

/** How long playback shows each checkpoint, in milliseconds. */
const FRAME_MS = 900;

/** The trace of a snapshot. If the server has dropped it, it is requested again. */
class SnapshotSource extends HttpSource {
  /**
   * @param {string} address
   * @param {any} worked
   */
  static async at(address, worked) {
    const made = new SnapshotSource(await requestJson(address), worked);
    made.address = address;
    return made;
  }

  /** @param {string} key */
  async fetch(key) {
    try {
      return await super.fetch(key);
    } catch (error) {
      if (/** @type {any} */ (error).status !== 404) throw error;
      this.described.id = (await requestJson(this.address)).id;
      return super.fetch(key);
    }
  }

  address = "";
}

/**
 * @param {HTMLElement} root
 * @returns {Promise<App | null>}
 */
export async function startReplay(root) {
  const t = messagesFor(navigator.language.slice(0, 2));
  skeleton(root, t);
  try {
    const [{ runs }, { worked }] = await Promise.all([requestJson("/api/runs"), requestJson("/api/models")]);
    root.dataset.replays = "1";
    return await openRun(root, runs, worked, t);
  } catch (error) {
    showNothing(root, t.error(error), t);
    throw error;
  }
}

/**
 * @param {HTMLElement} root
 * @param {Run[]} runs
 * @param {any} worked
 * @param {import("./messages.js").Translate} t
 */
async function openRun(root, runs, worked, t) {
  const given = new URLSearchParams(location.search);
  const run = runs.find((one) => one.name === given.get("run")) ?? runs[0];
  if (!run?.checkpoints.length) {
    showNothing(root, t(run ? "replayNoCheckpoint" : "replayNoRun"), t, run ? "" : "./");
    return null;
  }
  const steps = run.checkpoints.map(({ step }) => step);
  const text = Math.min(Number(given.get("text")) || 0, run.texts.length - 1);
  const at = given.has("step") ? Math.max(0, steps.findLastIndex((step) => step <= Number(given.get("step")))) : steps.length - 1;
  const replay = /** @type {Replay} */ ({ runs, run, text, at, playing: false, error: null });
  const sources = snapshotCache(replay, worked);
  const app = await start(root, await sources(text, at), pageAddress(), [(app) => replayBar(app, replay)]);
  addPlayback(app, replay, sources);
  writeAddress(replay);
  return app;
}

/**
 * Return a function that fetches each snapshot once.
 * @param {Replay} replay
 * @param {any} worked
 */
function snapshotCache({ run }, worked) {
  /** @type {Map<string, Promise<SnapshotSource>>} */
  const known = new Map();
  return (/** @type {number} */ text, /** @type {number} */ at) => {
    const address = `/api/runs/${encodeURIComponent(run.name)}/${run.checkpoints[at].step}?text=${text}`;
    let found = known.get(address);
    if (!found) {
      found = SnapshotSource.at(address, worked);
      found.catch(() => known.delete(address));
      known.set(address, found);
    }
    return found;
  };
}

/**
 * @param {App} app
 * @param {Replay} replay
 * @param {ReturnType<typeof snapshotCache>} sources
 */
function addPlayback(app, replay, sources) {
  const last = replay.run.checkpoints.length - 1;
  const notify = () => replay.onchange?.();
  let latest = 0;
  replay.go = async ({ text = replay.text, at = replay.at }) => {
    const mine = ++latest;
    const stays = text === replay.text;
    Object.assign(replay, { text, at: Math.min(Math.max(0, at), last), error: null });
    notify();
    try {
      const source = await sources(replay.text, replay.at);
      if (mine !== latest) return; // the slider has moved on
      await app.show(source, { selection: stays });
      writeAddress(replay);
      if (replay.at < last) sources(replay.text, replay.at + 1); // prefetch
    } catch (error) {
      replay.error = error;
    }
    notify();
  };
  replay.play = async (playing) => {
    replay.playing = playing;
    notify();
    if (playing && replay.at === last) await replay.go({ at: 0 });
    while (replay.playing && replay.at < last) {
      await new Promise((done) => setTimeout(done, FRAME_MS));
      if (replay.playing) await replay.go({ at: replay.at + 1 });
    }
    replay.playing = false;
    notify();
  };
}

/**
 * Write what is shown to the address.
 * @param {Replay} replay
 */
function writeAddress({ run, text, at }) {
  const parts = new URLSearchParams({ run: run.name, text: String(text), step: String(run.checkpoints[at].step) });
  history.replaceState(null, "", `?${parts}${location.hash}`);
}
