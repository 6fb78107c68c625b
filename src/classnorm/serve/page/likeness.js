// "Like a … but …": copy a known class and change some of its attributes.

import { api } from "./api.js";
import { attempt, el } from "./dom.js";
import { state } from "./state.js";

const SHOWN = 60; // attributes at a time; searching finds the others

const round = (number) => Number(number.toPrecision(3));

export function likenessWay(rename) {
  const { attribute_names: names, attribute_ranges: ranges } = state.model;
  let original = null; // the descriptor of the class to start from
  let values = null;
  const like = el("input", {
    id: "like-name",
    list: "class-names",
    autocomplete: "off",
    placeholder: "type to search",
  });
  const search = el("input", {
    id: "attribute-search",
    type: "search",
    autocomplete: "off",
    placeholder: `search ${names.length} attributes`,
  });
  const list = el("ul", { class: "attributes", tabindex: "0", "aria-label": "Attributes" });
  const sentence = el("p", { class: "sentence", role: "status" });
  const editor = el(
    "div",
    { hidden: true },
    el("label", { class: "field", for: "attribute-search" }, "but with other attributes", search),
    list,
    sentence,
  );

  const isEdited = (number) => values[number] !== original[number];
  const isBinary = () => original.every((value) => value === 0 || value === 1);

  function describe() {
    const edits = names.map((_, number) => number).filter(isEdited);
    const parts = edits.map((number) =>
      isBinary()
        ? `${values[number] ? "with" : "without"} ${names[number]}`
        : `${names[number]} ${round(original[number])} → ${round(values[number])}`,
    );
    sentence.replaceChildren(
      "Like ",
      el("strong", {}, like.value),
      parts.length ? " but " : "",
      el("strong", {}, parts.join(", ")),
      ".",
    );
  }

  function control(number) {
    const id = `attribute-${number}`;
    const change = (value, label, output) => {
      values[number] = value;
      label.classList.toggle("edited", isEdited(number));
      if (output) output.textContent = String(round(value));
      describe();
    };
    if (isBinary()) {
      const label = el("label", { for: id }, names[number]);
      const box = el("input", {
        type: "checkbox",
        id,
        checked: values[number] === 1,
        onchange: () => change(box.checked ? 1 : 0, label),
      });
      label.prepend(box);
      label.classList.toggle("edited", isEdited(number));
      return el("li", {}, label);
    }
    const [low, high] = ranges[number];
    const label = el("label", { for: id, class: isEdited(number) ? "edited" : null }, names[number]);
    const output = el("output", { for: id }, String(round(values[number])));
    const slider = el("input", {
      type: "range",
      id,
      min: Math.min(low, values[number]),
      max: Math.max(high, values[number]),
      step: "any",
      value: values[number],
      oninput: () => change(Number(slider.value), label, output),
    });
    return el("li", { class: "slider" }, label, slider, output);
  }

  function drawList() {
    const wanted = search.value.trim().toLowerCase();
    const weight = (number) => (isEdited(number) ? 1e9 : 0) + Math.abs(original[number]);
    const found = names.map((_, number) => number).filter((number) => names[number].toLowerCase().includes(wanted));
    found.sort((one, two) => weight(two) - weight(one));
    const more = found.length - SHOWN;
    list.replaceChildren(
      ...found.slice(0, SHOWN).map(control),
      more > 0 ? el("li", { class: "hint" }, `and ${more} more: search for them`) : "",
      found.length ? "" : el("li", { class: "hint" }, "no attribute has this in its name"),
    );
  }

  async function start() {
    if (!state.classes.has(like.value)) return;
    original = await api.descriptor(like.value);
    values = [...original];
    editor.hidden = false;
    search.value = "";
    rename("");
    drawList();
    describe();
  }
  like.addEventListener("input", () => attempt(start));
  search.addEventListener("input", drawList);

  return {
    title: "Like a … but …",
    node: el("div", {}, el("label", { class: "field", for: "like-name" }, "Like this class", like), editor),
    start: () => rename(""),
    document: () => {
      if (!values) throw new Error("Choose a class to start from.");
      const edits = names.flatMap((name, number) => (isEdited(number) ? [[name, values[number]]] : []));
      if (!edits.length) throw new Error("Change at least one attribute, or it is the same class again.");
      return { like: like.value, changes: Object.fromEntries(edits) };
    },
    choose: (name) => {
      like.value = name;
      return start();
    },
  };
}
