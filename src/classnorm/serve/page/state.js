// What the page knows: the model, its classes, and the pictures at hand with their answers.

import { api } from "./api.js";

/** Fires "classes" when the list of classes changed, "pictures" when pictures or their answers did. */
export const changes = new EventTarget();

export const state = {
  model: null, // the first of GET /model
  others: [], // names of the models beside it
  limits: {},
  classes: new Map(), // name → {class, kind, examples, character}
  pictures: [], // {id, blob, url, truth, top, known, others, before, why}; top is as long as the server allows
};

/** The letter of a class, for models of letters. */
export const character = (name) => state.classes.get(name)?.character ?? null;

export async function loadModel() {
  const { models, saving, limits } = await api.model();
  const [model, ...others] = models;
  Object.assign(state, { model, others: others.map((one) => one.name), limits, saving });
}

export async function loadClasses() {
  const classes = await api.classes();
  state.classes = new Map(classes.map((row) => [row.class, row]));
  changes.dispatchEvent(new Event("classes"));
}

let number = 0;

/** Add pictures and classify them. `truths` are their true classes, where they are known. */
export async function addPictures(blobs, truths = []) {
  const added = blobs.map((blob, index) => ({
    id: ++number,
    blob,
    url: URL.createObjectURL(blob),
    truth: truths[index],
  }));
  state.pictures.unshift(...added);
  changes.dispatchEvent(new Event("pictures"));
  let problem;
  try {
    await classify(added);
    problem = added.find((picture) => picture.problem)?.problem;
  } catch (error) {
    problem = error.message;
  }
  removePictures(added.filter((picture) => !picture.top)); // also says that the others have their answers
  if (problem) throw new Error(problem);
  return added;
}

export function removePictures(gone) {
  state.pictures = state.pictures.filter((picture) => !gone.includes(picture));
  for (const picture of gone) URL.revokeObjectURL(picture.url);
  changes.dispatchEvent(new Event("pictures"));
}

/** Ask again for all pictures, after a class came, went or got examples; the pictures whose answer changed. */
export async function classifyAgain() {
  const pictures = state.pictures.filter((picture) => picture.top);
  const before = new Map(pictures.map((picture) => [picture, picture.top]));
  await classify(pictures);
  for (const picture of pictures) Object.assign(picture, { before: before.get(picture), why: null });
  changes.dispatchEvent(new Event("pictures"));
  return pictures.filter(hasChanged);
}

export const hasChanged = ({ before, top }) => Boolean(before) && before[0].class !== top[0].class;

/** Parts of a list of pictures that fit into one request each. */
function requests(pictures) {
  const largest = 0.9 * (state.limits.body_mb ?? 8) * 2 ** 20;
  const parts = [[]];
  let size = 0;
  for (const picture of pictures) {
    size += picture.blob.size;
    if (parts.at(-1).length && (size > largest || parts.at(-1).length === state.limits.files)) {
      parts.push([]);
      size = picture.blob.size;
    }
    parts.at(-1).push(picture);
  }
  return pictures.length ? parts : [];
}

async function classify(pictures) {
  for (const part of requests(pictures)) {
    const answer = await api.predict(
      part.map((picture) => picture.blob),
      state.limits.top,
    );
    const others = (answer.models ?? []).slice(1);
    part.forEach((picture, row) => {
      picture.top = answer.predictions[row];
      picture.problem = answer.errors?.[row];
      picture.known = answer.known?.[row] ?? true;
      picture.others = others
        .map(({ model, predictions }) => ({ name: model, top: predictions[row] }))
        .filter(({ top }) => top);
    });
  }
}
