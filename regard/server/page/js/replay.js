// A training run, checkpoint by checkpoint: the same panes on what its model saw at each of them.

import { start } from "./app.js";
import { Refusal } from "./http.js";
import { HttpSource } from "./http_source.js";
import { speaker } from "./messages.js";
import { pageAddress } from "./state.js";
import { replayBar } from "./views/replay_bar.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {{ step: number, epoch: number | null, loss: number | null, score: number | null, scores: Record<string, number> }} Checkpoint
 * @typedef {{ name: string, texts: string[], metric: string, checkpoints: Checkpoint[] }} Run
 */

/**
 * What the bar shows and can do.
 * @typedef {object} Replay
 * @property {Run[]} runs
 * @property {Run} run
 * @property {number} text
 * @property {number} at the number of the checkpoint
 * @property {boolean} plays
 * @property {string} fault
 * @property {(parts: { text?: number, at?: number }) => Promise<void>} go
 * @property {(plays: boolean) => void} play
 * @property {(() => void) | undefined} told what the bar does when something has changed
 */

/** How long each checkpoint is shown, in milliseconds. */
const BEAT = 900;

/** A trace of a snapshot; one that the server has let go is asked for again. */
class SnapshotSource extends HttpSource {
  /**
   * @param {string} address
   * @param {any} worked
   */
  static async at(address, worked) {
    const made = new SnapshotSource(await described(address), worked);
    made.address = address;
    return made;
  }

  /** @param {string} key */
  async fetch(key) {
    try {
      return await super.fetch(key);
    } catch (error) {
      if (/** @type {any} */ (error).status !== 404) throw error;
      this.described.id = (await described(this.address)).id;
      return super.fetch(key);
    }
  }

  address = "";
}

/**
 * @param {string} address
 * @returns {Promise<any>}
 */
async function described(address) {
  const answer = await fetch(address);
  const told = await answer.json();
  if (!answer.ok) throw new Refusal(told.error);
  return told;
}

/**
 * @param {HTMLElement} root
 * @returns {Promise<App | null>}
 */
export async function startReplay(root) {
  const say = speaker(navigator.language.slice(0, 2));
  root.textContent = say("loading");
  try {
    const [{ runs }, { worked }] = await Promise.all([described("/api/runs"), described("/api/models")]);
    root.dataset.replays = "1";
    return await begin(root, runs, worked, say);
  } catch (error) {
    root.textContent = error instanceof Refusal ? error.message : say("noServer");
    throw error;
  }
}

/**
 * @param {HTMLElement} root
 * @param {Run[]} runs
 * @param {any} worked
 * @param {import("./messages.js").Say} say
 */
async function begin(root, runs, worked, say) {
  const given = new URLSearchParams(location.search);
  const run = runs.find((one) => one.name === given.get("run")) ?? runs[0];
  if (!run?.checkpoints.length) {
    root.textContent = say(run ? "replayNone" : "replayNoRun");
    return null;
  }
  const steps = run.checkpoints.map(({ step }) => step);
  const text = Math.min(Number(given.get("text")) || 0, run.texts.length - 1);
  const at = given.has("step") ? Math.max(0, steps.findLastIndex((step) => step <= Number(given.get("step")))) : steps.length - 1;
  const replay = /** @type {Replay} */ ({ runs, run, text, at, plays: false, fault: "" });
  const sources = sourcesOf(replay, worked);
  const app = await start(root, await sources(text, at), pageAddress(), [(app) => replayBar(app, replay)]);
  moving(app, replay, sources);
  keep(replay);
  return app;
}

/**
 * Each snapshot is asked for once.
 * @param {Replay} replay
 * @param {any} worked
 */
function sourcesOf({ run }, worked) {
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
 * @param {ReturnType<typeof sourcesOf>} sources
 */
function moving(app, replay, sources) {
  const last = replay.run.checkpoints.length - 1;
  const tell = () => replay.told?.();
  let latest = 0;
  replay.go = async ({ text = replay.text, at = replay.at }) => {
    const mine = ++latest;
    const stays = text === replay.text;
    Object.assign(replay, { text, at: Math.min(Math.max(0, at), last), fault: "" });
    tell();
    try {
      const source = await sources(replay.text, replay.at);
      if (mine !== latest) return; // the slider has moved on
      await app.show(source, stays);
      keep(replay);
      if (replay.at < last) sources(replay.text, replay.at + 1); // which will be asked for next
    } catch (error) {
      replay.fault = error instanceof Refusal ? error.message : app.say("noServer");
    }
    tell();
  };
  replay.play = async (plays) => {
    replay.plays = plays;
    tell();
    if (plays && replay.at === last) await replay.go({ at: 0 });
    while (replay.plays && replay.at < last) {
      await new Promise((done) => setTimeout(done, BEAT));
      if (replay.plays) await replay.go({ at: replay.at + 1 });
    }
    replay.plays = false;
    tell();
  };
}

/**
 * The address reopens what is shown.
 * @param {Replay} replay
 */
function keep({ run, text, at }) {
  const parts = new URLSearchParams({ run: run.name, text: String(text), step: String(run.checkpoints[at].step) });
  history.replaceState(null, "", `?${parts}${location.hash}`);
}
