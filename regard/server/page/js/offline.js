// Entry point of the offline file.

import { start } from "./app.js";
import { FileSource } from "./file_source.js";
import { messagesFor } from "./messages.js";
import { hasAddress, pageAddress } from "./state.js";

/**
 * Show the trace that is embedded in the page.
 * @param {HTMLElement} root
 */
export async function startFromPage(root) {
  try {
    const text = document.getElementById("regard-data")?.textContent ?? "{}";
    const data = JSON.parse(text);
    if (data.about.state && !location.hash && hasAddress()) history.replaceState(null, "", `#${data.about.state}`); // as it was when the file was made
    await start(root, new FileSource(data), pageAddress());
  } catch (error) {
    root.textContent = messagesFor(navigator.language.slice(0, 2))("cannotOpen", { why: String(error) });
    throw error;
  }
}
