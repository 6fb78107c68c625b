// Why a class won over the next one: attributes as signed bars, and the nearest training classes.

import { api } from "./api.js";
import { el } from "./dom.js";
import { glyph, readable } from "./labels.js";
import { character, state } from "./state.js";

const REST = new Set(["other attributes", "calibration", "examples"]); // no attributes, and they dwarf those

const signed = (number) => `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(2)}`;

function row({ name, contribution }, largest) {
  const fill = el("span");
  fill.style.setProperty("--share", Math.min(1, Math.abs(contribution) / largest));
  const bar = el("div", { class: contribution < 0 ? "signed against" : "signed", "aria-hidden": "true" }, fill);
  return el(
    "tr",
    { class: REST.has(name) ? "rest" : null },
    el("th", { scope: "row" }, readable(name)),
    el("td", {}, bar),
    el("td", {}, signed(contribution)),
  );
}

/** A picture of a class that arrives later, if there is one. */
function thumbnail(name) {
  if (character(name) || !state.model.thumbnails) return null;
  const image = el("img", { alt: "", hidden: true });
  const show = (blob) => {
    image.src = URL.createObjectURL(blob);
    image.hidden = false;
  };
  api.thumbnail(name).then(show, () => {});
  return image;
}

/** One element of `explanations` of POST /explain. */
export function explanation(why) {
  const single = why.attributes.filter(({ name }) => !REST.has(name));
  const largest = Math.max(...single.map(({ contribution }) => Math.abs(contribution)), 1e-9);
  const title = `Why ${why.class}${why.against ? ` and not ${why.against}` : ""}: what speaks for it (+) and against it (−)`;
  const table = el(
    "table",
    {},
    el("caption", {}, title),
    el(
      "tbody",
      {},
      why.attributes.map((attribute) => row(attribute, largest)),
    ),
  );
  const near = (why.neighbours ?? []).map(({ class: name }) =>
    el("li", {}, thumbnail(name), glyph(name), el("span", {}, name)),
  );
  return el(
    "div",
    { class: "why" },
    table,
    near.length > 0 && el("p", { class: "small" }, "Nearest training classes"),
    near.length > 0 && el("ul", { class: "near" }, near),
  );
}
