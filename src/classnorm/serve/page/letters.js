// Compose a letter from base, case and marks: one way to invent a class, for models of letters.

import { el } from "./dom.js";
import { state } from "./state.js";

const SIDE = 192; // pixels; the proportions below are those of the pictures such models are trained on
const SIZE = 0.64;
const BASELINE = 0.74;

/** A picture of a letter in the serif font of this browser. */
export async function pictureOf(letter) {
  const canvas = el("canvas", { width: SIDE, height: SIDE });
  const pen = canvas.getContext("2d");
  pen.fillStyle = "white";
  pen.fillRect(0, 0, SIDE, SIDE);
  pen.fillStyle = "black";
  pen.font = `${SIZE * SIDE}px serif`;
  pen.textAlign = "center";
  pen.fillText(letter, SIDE / 2, BASELINE * SIDE);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** The letter, composed; null if one of the marks, like a stroke, is no character of its own. */
function written(base, size, marks) {
  const pieces = [base[size], ...marks.map((mark) => mark.character)];
  return pieces.every(Boolean) ? pieces.join("").normalize("NFC") : null;
}

function nameOf(base, size, marks) {
  const ending = marks.length ? ` with ${marks.map((mark) => mark.name).join(" and ")}` : "";
  return `${base.script} ${size} letter ${base.name.slice(base.script.length + 1)}${ending}`;
}

const known = (letter) => [...state.classes.values()].find((row) => row.character === letter);

/** Letters that no class is: a base with a mark above it. */
function newLetters({ bases, marks }) {
  const above = marks.filter((mark) => mark.character && mark.position === "above");
  const all = bases.flatMap((base) => above.map((mark) => ({ base, mark, letter: written(base, "small", [mark]) })));
  return all.filter(({ letter }) => letter && !known(letter));
}

const choice = (type, value, ...label) => el("label", {}, el("input", { type, value, name: type }), ...label);

/** The controls for base, case and marks. */
function controls({ bases, marks }) {
  const option = ({ name, script, small, capital }) => {
    const [sign, word] = [small ?? capital ?? "", name.slice(script.length + 1)];
    return el("option", { value: name }, sign === word ? word : `${sign}  ${word}`);
  };
  const groups = Map.groupBy(bases, (base) => base.script);
  const select = el(
    "select",
    { id: "letter-base" },
    [...groups].map(([script, some]) => el("optgroup", { label: script }, some.map(option))),
  );
  const sizes = ["small", "capital"].map((size) => choice("radio", size, size));
  const sign = ({ character }) => character && el("span", { class: "glyph", "aria-hidden": "true" }, `◌${character}`);
  const boxes = marks.map((mark) => choice("checkbox", mark.name, ...[sign(mark), mark.name].filter(Boolean)));
  const chosen = () => {
    const base = bases.find((row) => row.name === select.value);
    const size = sizes[1].firstChild.checked ? "capital" : "small";
    const picked = marks.filter((_, number) => boxes[number].firstChild.checked);
    return { base, size, picked, name: nameOf(base, size, picked), letter: written(base, size, picked) };
  };
  const choose = ({ base, mark }) => {
    select.value = base.name;
    for (const { firstChild: box } of boxes) box.checked = box.value === mark?.name;
  };
  sizes[0].firstChild.checked = true;
  return { select, sizes, boxes, chosen, choose };
}

const fieldset = (legend, inputs) =>
  el("fieldset", {}, el("legend", {}, legend), el("div", { class: "chips" }, inputs));

export function letterWay(rename) {
  const parts = state.model.glyphs;
  const { select, sizes, boxes, chosen, choose } = controls(parts);
  const specimen = el("p", { class: "specimen", role: "img" });
  const hint = el("p", { class: "hint", role: "status" });
  const show = el("input", { type: "checkbox", checked: true });

  const refresh = () => {
    const { base, size, name, letter } = chosen();
    const same = state.classes.get(name) ?? (letter && known(letter));
    specimen.textContent = same?.character ?? letter ?? base[size];
    specimen.setAttribute("aria-label", name);
    const note = letter ? "" : "Your browser cannot write this letter, but the model can know it.";
    hint.textContent = same ? `The model has this letter already: ${same.class}.` : note;
    rename(name);
  };
  const take = (some) => {
    choose(some ?? { base: parts.bases[0] });
    refresh();
  };
  const surprise = () => {
    const letters = newLetters(parts);
    take(letters[Math.floor(Math.random() * letters.length)]);
  };
  const basics = el("div", {}, el("label", { class: "field" }, "Letter", select), fieldset("Case", sizes));
  return {
    title: "Compose a letter",
    node: el(
      "div",
      { oninput: refresh },
      el("div", { class: "composer" }, specimen, basics),
      fieldset("Marks", boxes),
      el("div", { class: "row" }, el("button", { type: "button", onclick: surprise }, "Surprise me")),
      hint,
      el("label", { class: "switch" }, show, el("span", {}, "and show it one, in this browser’s serif font")),
    ),
    start: () => take(newLetters(parts)[0]),
    document: () => {
      const { base, size, picked } = chosen();
      const marks = picked.flatMap((mark) => [mark.name, mark.position]);
      return { attributes: [...new Set([base.script, size, base.name, ...marks])] };
    },
    picture: () => (show.checked && chosen().letter ? pictureOf(chosen().letter) : null),
  };
}
