// Entry point of the offline file.

import { start } from "./app.js";
import { FileSource } from "./file_source.js";
import { messagesFor } from "./messages.js";
import { pageAddress } from "./state.js";

/**
 * Show the trace that is embedded in the page.
 * @param {HTMLElement} root
 */
export async function startFromPage(root) {
  try {
    const text = document.getElementById("regard-data")?.textContent ?? "{}";
    await start(root, new FileSource(JSON.parse(text)), pageAddress());
  } catch (error) {
    root.textContent = messagesFor(navigator.language.slice(0, 2))("cannotOpen", { why: String(error) });
    throw error;
  }
}
