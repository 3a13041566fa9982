// Images of the reader: chosen, dropped anywhere on the page, or drawn.

import { sendImage } from "./http.js";
import { compareWithImage } from "./views/compare_bar.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./live.js").Live} Live
 */

/**
 * Return the model that an image goes to: the open one if it reads images, otherwise the first that does.
 * @param {Live} live
 */
function imageModel({ models, request }) {
  const reads = models.filter((one) => one.reads === "image");
  return reads.find((one) => one.name === request?.model) ?? reads[0];
}

/**
 * Upload an image and show what the model computes for it; a file that is not an image is reported on the page.
 * @param {App} app
 * @param {Live} live
 * @param {Blob | null | undefined} file
 * @param {boolean} [continues] whether it replaces the last image, as while drawing
 */
export async function showImage(app, live, file, continues = false) {
  const model = imageModel(live);
  if (!file || !model) return;
  try {
    await live.run({ model: model.name, image: await sendImage(file) }, { continues });
  } catch (error) {
    app.root.dispatchEvent(new CustomEvent("regard-error", { detail: error }));
  }
}

/**
 * Accept files that are dropped anywhere on the page; on the second side of a comparison, they replace its image.
 * @param {App} app
 * @param {Live} live
 */
export function acceptDrops(app, live) {
  app.root.addEventListener("dragover", (event) => imageModel(live) && event.preventDefault());
  app.root.addEventListener("drop", (event) => {
    const file = event.dataTransfer?.files[0];
    if (!file) return;
    event.preventDefault();
    const second = app.about.image && /** @type {Element} */ (event.target).closest(".compare-bar, .compare-figures [data-side=second]");
    if (second) compareWithImage(app, file);
    else showImage(app, live, file);
  });
}
