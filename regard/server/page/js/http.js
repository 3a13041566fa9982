// Requests to the local server. Errors carry a code, so that the page can show them in its language.

/**
 * What to trace; see the request models in Python.
 * @typedef {{ model: string, text?: string, image?: string, target?: string | number[], beam?: number, precision?: string, part?: number }} TraceRequest
 * @typedef {{ doing: string, done: number, of: number | null, text?: string | null }} Progress
 */

/** Identifies this page in the server's queue. */
const CLIENT = Math.random().toString(36).slice(2);

/** An error that the server reports: its HTTP status, code, the parameters of the message, and the message in English. */
export class ServerError extends Error {
  isServerError = true;

  /**
   * @param {any} error `{ code, params, message }`, or only a message
   * @param {number} [status]
   */
  constructor(error, status = 0) {
    super(error?.message ?? String(error));
    this.status = status;
    /** @type {string} */
    this.code = error?.code ?? "";
    /** @type {Record<string, string | number>} */
    this.params = error?.params ?? {};
  }
}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  const headers = { "x-regard-client": CLIENT, ...(options.body ? { "content-type": "application/json" } : {}), ...options.headers };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ServerError(body?.error ?? `${response.status} ${response.statusText}`, response.status);
}

/**
 * Fetch JSON.
 * @param {string} path
 * @param {any} [body] sent with POST if given
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function requestJson(path, body, signal) {
  return (await request(path, body === undefined ? { signal } : { method: "POST", body: JSON.stringify(body), signal })).json();
}

/** @returns {Promise<{ models: any[], worked: any, example: string, runs: string[] }>} */
export async function fetchModels() {
  return requestJson("/api/models");
}

/**
 * Upload an image and return its name on the server.
 * @param {Blob} file
 * @returns {Promise<string>}
 */
export async function sendImage(file) {
  const headers = { "content-type": file.type || "image/png" };
  return (await (await request("/api/images", { method: "POST", body: file, headers })).json()).image;
}

/**
 * Request a long computation and report its progress (server-sent events).
 * @param {string} path
 * @param {any} body
 * @param {{ signal?: AbortSignal, onProgress?: (progress: Progress) => void }} [options]
 * @returns {Promise<any>}
 */
export async function streamRequest(path, body, { signal, onProgress } = {}) {
  const headers = { accept: "text/event-stream" };
  const response = await request(path, { method: "POST", body: JSON.stringify(body), headers, signal });
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.clone().body).getReader();
  response.text().catch(() => null); // browsers list a request as canceled unless all of it is read this way
  const decoder = new TextDecoder();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const events = rest.split("\n\n");
    rest = /** @type {string} */ (events.pop());
    for (const event of events) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/s.exec(event) ?? [];
      if (name === "progress") onProgress?.(JSON.parse(data));
      if (name === "result") return JSON.parse(data);
      if (name === "error") throw new ServerError(JSON.parse(data).error);
    }
    if (done) throw new Error("the server closed the connection");
  }
}
