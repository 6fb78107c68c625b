// How pictures come in: dropped, pasted, chosen, or samples for a visitor who has none.

import { api } from "./api.js";
import { DRAGGED } from "./cards.js";
import { $, announce, attempt, dropTarget, plural, toast } from "./dom.js";
import { pictureOf } from "./letters.js";
import { addPictures, state } from "./state.js";

const SAMPLES = 6;

/** The images among some files; browsers do not know the type of every photo. */
export const images = (files) =>
  [...files].filter(({ type, name }) => /^image\//.test(type) || /\.hei[cf]$/i.test(name));

function shuffled(items) {
  const keyed = items.map((item) => [Math.random(), item]);
  return keyed.sort(([one], [two]) => one - two).map(([, item]) => item);
}

async function show(blobs, truths) {
  const added = await addPictures(blobs, truths);
  const answers = added.map(({ known, top }) => (known ? top[0].class : "unknown"));
  announce(`${plural(added.length, "picture")}: ${answers.join(", ")}`);
}

/** Pictures of classes that the model has never seen: in this browser's serif font, or from the model's test pictures. */
async function showSamples() {
  const unseen = shuffled([...state.classes.values()].filter(({ kind }) => kind === "unseen"));
  const draw = (row) => (row.character ? pictureOf(row.character) : api.thumbnail(row.class).catch(() => null));
  const drawn = await Promise.all(unseen.slice(0, SAMPLES).map(async (row) => [await draw(row), row.class]));
  const found = drawn.filter(([blob]) => blob);
  await show(
    found.map(([blob]) => blob),
    found.map(([, name]) => name),
  );
}

export function setUpIncoming() {
  const take = (files) => {
    const found = images(files);
    if (found.length) attempt(() => show(found));
    else if (files.length) toast("Only images can be classified.");
  };
  const takeDropped = (transfer) => transfer.types.includes(DRAGGED) || take(transfer.files); // not the same again
  $("files").addEventListener("change", (event) => {
    take(event.target.files);
    event.target.value = "";
  });
  dropTarget($("drop"), takeDropped);
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault(); // a picture dropped beside the target does not replace the page
    takeDropped(event.dataTransfer);
  });
  document.addEventListener("paste", (event) => take(event.clipboardData.files));
  $("samples").hidden = !state.model.thumbnails;
  $("samples").addEventListener("click", () => attempt(showSamples));
}
