// How a class is shown wherever it appears: its letter, for models of letters, and its kind.

import { el } from "./dom.js";
import { character } from "./state.js";

export const MARKS = { seen: "●", unseen: "◆", yours: "★" };

const TITLES = {
  seen: "The model was trained on pictures of this class",
  unseen: "The model knows this class by its description alone: it has never seen a picture of it",
  yours: "You invented this class",
};

export const badge = (kind) => el("span", { class: `badge ${kind}`, title: TITLES[kind] }, `${MARKS[kind]} ${kind}`);

/** Names of attributes for people: "has_crown_color::grey" is "crown color: grey". */
export const readable = (attribute) => attribute.replace(/^has_/, "").replaceAll("::", ": ").replaceAll("_", " ");

/** The kind as a sign, with a word for screen readers. */
export const mark = (kind) =>
  el(
    "span",
    { class: `mark ${kind}`, title: TITLES[kind] },
    el("span", { "aria-hidden": "true" }, MARKS[kind]),
    el("span", { class: "visually-hidden" }, kind),
  );

export const glyph = (name) =>
  character(name) && el("span", { class: "glyph", "aria-hidden": "true" }, character(name));
