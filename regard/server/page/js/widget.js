// The explorer as a notebook widget: the module that anywidget loads, with its `render`.

import { start } from "./app.js";
import { FileSource } from "./file_source.js";
import { messagesFor } from "./messages.js";

/**
 * The widget model: values that Python and the page share.
 * @typedef {object} Model
 * @property {(name: string) => any} get
 * @property {(name: string, value: any) => void} set
 * @property {() => void} save_changes
 * @property {(event: string, listener: () => void) => void} on
 * @property {(event: string, listener: () => void) => void} off
 */

/**
 * Show the trace in `data`; `state` holds the selection.
 * @param {{ model: Model, el: HTMLElement }} given
 * @returns {Promise<() => void>} removes the widget
 */
export async function render({ model, el }) {
  const root = document.createElement("div");
  root.tabIndex = -1; // receives keys, so that the notebook keeps its shortcuts
  root.dataset.lmSuppressShortcuts = "true"; // tells Jupyter to ignore keys here
  el.classList.add("regard-host");
  el.append(root);
  /** @type {(() => void)[]} */
  const listeners = [];
  const address = {
    read: () => model.get("state"),
    write: (/** @type {string} */ text) => {
      model.set("state", text);
      model.save_changes();
    },
    listen: (/** @type {() => void} */ f) => {
      listeners.push(f);
      model.on("change:state", f);
    },
  };
  try {
    await start(root, new FileSource(JSON.parse(model.get("data"))), address);
  } catch (error) {
    root.textContent = messagesFor(navigator.language.slice(0, 2))("cannotOpen", { why: String(error) });
    throw error;
  }
  return () => {
    for (const f of listeners) model.off("change:state", f);
    root.remove();
  };
}
