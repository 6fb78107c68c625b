// "Like a … but …": copy a known class and change some of its attributes.

import { api } from "./api.js";
import { attempt, el } from "./dom.js";
import { readable } from "./labels.js";
import { state } from "./state.js";

const SHOWN = 60; // attributes at a time; searching finds the others

const round = (number) => Number(number.toPrecision(3));

/** A searchable list of attributes: checkboxes where they are 0 or 1, sliders elsewhere. */
class AttributeEditor {
  constructor() {
    const { attribute_names: keys, attribute_ranges: ranges } = state.model;
    Object.assign(this, { keys, ranges, names: keys.map(readable) });
    const placeholder = `search ${keys.length} attributes`;
    this.search = el("input", { type: "search", autocomplete: "off", placeholder, oninput: () => this.draw() });
    this.list = el("ul", { class: "attributes", tabindex: "0", "aria-label": "Attributes" });
    this.sentence = el("p", { class: "sentence", role: "status" });
    const label = el("label", { class: "field" }, "but with other attributes", this.search);
    this.node = el("div", { hidden: true }, label, this.list, this.sentence);
  }

  /** Start from the attributes of a class. */
  load(name, descriptor) {
    Object.assign(this, { name, original: descriptor, values: [...descriptor] });
    this.isBinary = descriptor.every((value) => value === 0 || value === 1);
    this.node.hidden = false;
    this.search.value = "";
    this.draw();
    this.describe();
  }

  isEdited(number) {
    return this.values[number] !== this.original[number];
  }

  /** Numbers of the attributes that differ from the class. */
  get edits() {
    return this.values ? [...this.values.keys()].filter((number) => this.isEdited(number)) : [];
  }

  get changes() {
    return Object.fromEntries(this.edits.map((number) => [this.keys[number], this.values[number]]));
  }

  describe() {
    const parts = this.edits.map((number) => {
      const [name, from, to] = [this.names[number], this.original[number], this.values[number]];
      return this.isBinary ? `${to ? "with" : "without"} ${name}` : `${name} ${round(from)} → ${round(to)}`;
    });
    const but = parts.length ? [" but ", el("strong", {}, parts.join(", "))] : [];
    this.sentence.replaceChildren("Like ", el("strong", {}, this.name), ...but, ".");
  }

  draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const weight = (number) => (this.isEdited(number) ? Infinity : Math.abs(this.original[number]));
    const found = [...this.names.keys()].filter((number) => this.names[number].toLowerCase().includes(wanted));
    const more = found.length - SHOWN;
    found.sort((one, two) => (weight(one) === weight(two) ? one - two : weight(two) - weight(one)));
    this.list.replaceChildren(
      ...found.slice(0, SHOWN).map((number) => this.control(number)),
      more > 0 ? el("li", { class: "hint" }, `and ${more} more: search for them`) : "",
      found.length ? "" : el("li", { class: "hint" }, "no attribute has this in its name"),
    );
  }

  control(number) {
    const name = el("span", { class: this.isEdited(number) ? "edited" : null }, this.names[number]);
    const output = el("output", {}, String(round(this.values[number])));
    const set = (value) => {
      this.values[number] = value;
      name.classList.toggle("edited", this.isEdited(number));
      output.textContent = String(round(value));
      this.describe();
    };
    if (this.isBinary) {
      const box = el("input", { type: "checkbox", onchange: () => set(box.checked ? 1 : 0) });
      box.checked = this.values[number] === 1;
      return el("li", {}, el("label", {}, box, name));
    }
    const [low, high] = this.ranges[number];
    const value = this.values[number];
    const limits = { min: Math.min(low, value), max: Math.max(high, value), step: "any" };
    const slider = el("input", { type: "range", ...limits, value, oninput: () => set(Number(slider.value)) });
    return el("li", {}, el("label", { class: "slider" }, name, slider), output);
  }
}

export function likenessWay(rename) {
  const editor = new AttributeEditor();
  const start = async () => {
    if (!state.classes.has(like.value)) return;
    const name = like.value;
    editor.load(name, await api.descriptor(name));
  };
  const more = { list: "class-names", autocomplete: "off", placeholder: "type to search" };
  const like = el("input", { id: "like-name", ...more, oninput: () => attempt(start) });
  return {
    title: "Like a … but …",
    node: el("div", {}, el("label", { class: "field" }, "Like this class", like), editor.node),
    start: () => rename(""),
    document: () => {
      if (!editor.name) throw new Error("Choose a class to start from.");
      if (!editor.edits.length) throw new Error("Change at least one attribute, or it is the same class again.");
      return { like: editor.name, changes: editor.changes };
    },
  };
}
