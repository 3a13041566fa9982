// Requests to the local server: what it refuses comes as a sentence, long work tells how far it is.

/**
 * What the server is asked to run; see AskTrace in Python.
 * @typedef {{ model: string, text?: string, image?: string, target?: string | number[], beam?: number }} Ask
 * @typedef {{ doing: string, done: number, of: number | null, text?: string | null }} Progress
 */

/** This page, as the server's queue knows it. */
const CLIENT = Math.random().toString(36).slice(2);

/** A sentence from the server. */
export class Refusal extends Error {}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  const headers = { "x-regard-client": CLIENT, ...(options.body ? { "content-type": "application/json" } : {}), ...options.headers };
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  throw Object.assign(new Refusal(said?.error ?? `${answer.status} ${answer.statusText}`), { status: answer.status });
}

/**
 * A JSON answer to a JSON question.
 * @param {string} path
 * @param {any} [asked] posted where there is something to ask
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function requestJson(path, asked, signal) {
  return (await request(path, asked === undefined ? { signal } : { method: "POST", body: JSON.stringify(asked), signal })).json();
}

/** @returns {Promise<{ models: any[], worked: any, example: string, runs: string[] }>} */
export async function fetchModels() {
  return requestJson("/api/models");
}

/**
 * Send a picture; the name by which it can be meant.
 * @param {Blob} file
 * @returns {Promise<string>}
 */
export async function sendImage(file) {
  const headers = { "content-type": file.type || "image/png" };
  return (await (await request("/api/images", { method: "POST", body: file, headers })).json()).image;
}

/**
 * Ask for long work, and be told how far it is.
 * @param {string} path
 * @param {any} asked
 * @param {{ signal?: AbortSignal, tell?: (progress: Progress) => void }} [options]
 * @returns {Promise<any>}
 */
export async function askFor(path, asked, { signal, tell } = {}) {
  const headers = { accept: "text/event-stream" };
  const answer = await request(path, { method: "POST", body: JSON.stringify(asked), headers, signal });
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const events = rest.split("\n\n");
    rest = /** @type {string} */ (events.pop());
    for (const event of events) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/s.exec(event) ?? [];
      if (name === "progress") tell?.(JSON.parse(data));
      if (name === "result") return JSON.parse(data);
      if (name === "error") throw new Refusal(JSON.parse(data).error);
    }
    if (done) throw new Error("the server has gone");
  }
}
