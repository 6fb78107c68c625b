// One card per picture: its classes with probabilities, what other models say, and why.

import { api } from "./api.js";
import { $, attempt, el, percent } from "./dom.js";
import { explanation } from "./explanation.js";
import { badge, glyph, mark } from "./labels.js";
import { changes, hasChanged, removePictures, state } from "./state.js";

const SHOWN = 4; // classes

/** Pictures of this page travel by their number when they are dragged. */
export const DRAGGED = "application/x-classnorm-picture";

/** Classes with a bar behind each; bars grow from where they were before. */
export function bars(top, before = []) {
  const old = new Map(before.map((row) => [row.class, row.probability]));
  const rows = top.map((row) => {
    const item = el(
      "li",
      { class: row.kind },
      mark(row.kind),
      glyph(row.class),
      el("span", { class: "label" }, row.class),
      el("span", { class: "percent" }, percent(row.probability)),
    );
    item.style.setProperty("--share", old.get(row.class) ?? 0);
    requestAnimationFrame(() => requestAnimationFrame(() => item.style.setProperty("--share", row.probability)));
    return item;
  });
  return el("ol", { class: "bars" }, rows);
}

function truthLine({ truth, top }) {
  if (!truth) return null;
  const right = truth === top[0].class;
  return el("p", { class: `small ${right ? "right" : "wrong"}` }, right ? "✓ right" : `✗ it is ${truth}`);
}

function head(picture) {
  const [best] = picture.top;
  const thumb = el("img", {
    class: "thumb",
    src: picture.url,
    alt: picture.truth ?? "Your picture",
    draggable: "true",
    ondragstart: (event) => event.dataTransfer.setData(DRAGGED, String(picture.id)),
  });
  const answer = picture.known ? [glyph(best.class), el("span", {}, best.class)] : ["Unknown"];
  return el(
    "div",
    { class: "card-head" },
    thumb,
    el(
      "div",
      { class: "said" },
      el("p", { class: "answer" }, answer),
      picture.known && el("p", {}, badge(best.kind), " ", el("span", { class: "small" }, percent(best.probability))),
      hasChanged(picture) && el("p", { class: "was" }, `was: ${picture.before[0].class}`),
      truthLine(picture),
    ),
  );
}

async function toggleWhy(picture) {
  picture.whyOpen = !(picture.why && picture.whyOpen);
  picture.why ??= await attempt(() => api.explain(picture.blob));
  if (picture.why) redraw(picture);
}

const quiet = (text, onclick, more = {}) => el("button", { type: "button", class: "quiet", onclick, ...more }, text);

function foot(picture, give) {
  const open = Boolean(picture.why && picture.whyOpen);
  return el(
    "div",
    { class: "card-foot" },
    state.model.explains && quiet("Why?", () => toggleWhy(picture), { "aria-expanded": String(open) }),
    state.model.takes_examples && quiet("Give to a class…", () => give(picture)),
    quiet("Remove", () => {
      removePictures([picture]);
      $("pictures").focus();
    }),
  );
}

function card(picture, give) {
  const item = el("li", { class: "card", id: `picture-${picture.id}` });
  if (!picture.top) {
    const thumb = el("img", { class: "thumb", src: picture.url, alt: "" });
    item.append(el("div", { class: "card-head" }, thumb, el("p", { class: "small" }, "Looking…")));
    return item;
  }
  item.classList.toggle("changed", hasChanged(picture));
  const others = $("compare").checked ? picture.others : [];
  item.append(
    head(picture),
    picture.known ? "" : el("p", { class: "unknown" }, "It looks like none of the classes. The nearest are:"),
    bars(picture.top.slice(0, SHOWN), picture.before),
    ...others.map(({ name, top }) =>
      el("div", { class: "other" }, el("h3", {}, `${name} says`), bars(top.slice(0, 2))),
    ),
    foot(picture, give),
    picture.why && picture.whyOpen ? explanation(picture.why) : "",
  );
  return item;
}

let redraw = () => {};

/** Set up the list of cards. `give` gives a picture to a class. */
export function setUpCards(give) {
  const draw = () => {
    $("cards").replaceChildren(...state.pictures.map((picture) => card(picture, give)));
    $("clear").hidden = state.pictures.length === 0;
  };
  redraw = (picture) => {
    $(`picture-${picture.id}`).replaceWith(card(picture, give));
    $(`picture-${picture.id}`).querySelector("[aria-expanded]").focus();
  };
  changes.addEventListener("pictures", draw);
  $("compare").addEventListener("change", draw);
  $("clear").addEventListener("click", () => removePictures(state.pictures));
}
