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

/** A letter that no class is: some base with some mark. `pick` chooses one of many. */
function newLetter({ bases, marks }, pick) {
  const drawable = marks.filter((mark) => mark.character);
  const free = bases.flatMap((base) =>
    drawable
      .filter((mark) => base.small && mark.position === "above" && !known(written(base, "small", [mark])))
      .map((mark) => ({ base, marks: [mark] })),
  );
  return pick(free);
}

export function letterWay(rename) {
  const { bases, marks } = state.model.glyphs;
  const scripts = [...new Set(bases.map((base) => base.script))];
  const options = (script) =>
    bases
      .filter((base) => base.script === script)
      .map((base) =>
        el(
          "option",
          { value: base.name },
          `${base.small ?? base.capital ?? ""}  ${base.name.slice(script.length + 1)}`,
        ),
      );
  const select = el(
    "select",
    { id: "letter-base" },
    scripts.map((script) => el("optgroup", { label: script }, options(script))),
  );
  const sizes = ["small", "capital"].map((size) =>
    el("label", {}, el("input", { type: "radio", name: "case", value: size, checked: size === "small" }), size),
  );
  const boxes = marks.map((mark) => {
    const sign = mark.character && el("span", { "aria-hidden": "true" }, `◌${mark.character}`);
    return el("label", {}, el("input", { type: "checkbox", value: mark.name }), sign, mark.name);
  });
  const specimen = el("p", { class: "specimen", role: "img" });
  const hint = el("p", { class: "hint", role: "status" });
  const show = el("input", { type: "checkbox", checked: true, id: "letter-show" });

  const chosen = () => {
    const base = bases.find((row) => row.name === select.value);
    const size = sizes.map((label) => label.firstChild).find((radio) => radio.checked).value;
    const picked = marks.filter((_, number) => boxes[number].firstChild.checked);
    return { base, size, picked, name: nameOf(base, size, picked), letter: written(base, size, picked) };
  };
  const refresh = () => {
    const { base, size, name, letter } = chosen();
    const same = state.classes.get(name) ?? (letter && known(letter));
    specimen.textContent = same?.character ?? letter ?? base[size];
    specimen.setAttribute("aria-label", name);
    const note = letter ? "" : "Your browser cannot write this letter, but the model can know it.";
    hint.textContent = same ? `The model has this letter already: ${same.class}.` : note;
    rename(name);
  };
  const choose = (combination) => {
    select.value = combination.base.name;
    boxes.forEach(
      (label) => (label.firstChild.checked = combination.marks.some((mark) => mark.name === label.firstChild.value)),
    );
    refresh();
  };
  const surprise = el(
    "button",
    {
      type: "button",
      onclick: () => choose(newLetter({ bases, marks }, (all) => all[Math.floor(Math.random() * all.length)])),
    },
    "Surprise me",
  );

  const node = el(
    "div",
    { oninput: refresh },
    el(
      "div",
      { class: "composer" },
      specimen,
      el(
        "div",
        {},
        el("label", { class: "field", for: "letter-base" }, "Letter", select),
        el("fieldset", {}, el("legend", {}, "Case"), el("div", { class: "chips" }, sizes)),
      ),
    ),
    el("fieldset", {}, el("legend", {}, "Marks"), el("div", { class: "chips" }, boxes)),
    el("div", { class: "row" }, surprise),
    hint,
    el(
      "label",
      { class: "switch", for: "letter-show" },
      show,
      el("span", {}, "and show it one, in this browser’s serif font"),
    ),
  );
  return {
    title: "Compose a letter",
    node,
    start: () => choose(newLetter({ bases, marks }, ([first]) => first) ?? { base: bases[0], marks: [] }),
    document: () => {
      const { base, size, picked } = chosen();
      const parts = picked.flatMap((mark) => [mark.name, mark.position]);
      return { attributes: [...new Set([base.script, size, base.name, ...parts])] };
    },
    picture: () => (show.checked && chosen().letter ? pictureOf(chosen().letter) : null),
  };
}
