// Invent a class: composed, like another one, or in words. It competes at once.

import { api } from "./api.js";
import { $, announce, el, plural } from "./dom.js";
import { letterWay } from "./letters.js";
import { likenessWay } from "./likeness.js";
import { addPictures, classifyAgain, loadClasses, removePictures, state } from "./state.js";

function wordsWay(rename) {
  const text = el("textarea", {
    id: "class-text",
    maxlength: "5000",
    placeholder: "A small bird with a red crown, a black back and a white belly…",
  });
  return {
    title: "In words",
    node: el("label", { class: "field", for: "class-text" }, "What does it look like?", text),
    start: () => rename(""),
    document: () => {
      if (!text.value.trim()) throw new Error("Describe the class in a sentence or two.");
      return { text: text.value };
    },
  };
}

function ways(rename) {
  const { glyphs, speaks_text: speaksText, attribute_names: names } = state.model;
  return [glyphs && letterWay(rename), speaksText && wordsWay(rename), names?.length > 0 && likenessWay(rename)].filter(
    Boolean,
  );
}

/** Add the class, ask again for all pictures, and say which changed their answer. */
async function invent(way, name) {
  const document = { name, ...way.document() };
  const picture = await way.picture?.();
  const shown = picture ? await addPictures([picture], [name]) : []; // first without the class: it cannot be right
  try {
    await api.addClass(document);
  } catch (error) {
    removePictures(shown);
    throw error;
  }
  await loadClasses();
  const changed = await classifyAgain();
  const count = state.pictures.length;
  const effect =
    count === 0
      ? "Show it a picture."
      : changed.length === 0
        ? `None of ${plural(count, "picture")} changes its answer.`
        : `${changed.length} of ${plural(count, "picture")} ${changed.length === 1 ? "changes its" : "change their"} answer.`;
  const text = `“${name}” now competes with ${state.classes.size - 1} classes. ${effect}`;
  $("outcome").textContent = text;
  $("outcome").hidden = false;
  announce(text);
  if (changed.length) window.document.getElementById(`picture-${changed[0].id}`).scrollIntoView({ block: "nearest" });
}

/** Set up the panel, with the ways that fit the model. */
export function setUpInvent() {
  const rename = (name) => ($("class-name").value = name);
  const all = ways(rename);
  $("invent").hidden = all.length === 0;
  let current = all[0];
  const choose = (way) => {
    current = way;
    $("way").replaceChildren(way.node);
    $("invent-error").textContent = "";
    way.start();
  };
  const radios = all.map((way, number) =>
    el("input", { type: "radio", name: "way", checked: number === 0, onchange: () => choose(way) }),
  );
  $("ways").replaceChildren(...all.map((way, number) => el("label", {}, radios[number], el("span", {}, way.title))));
  if (current) choose(current);

  $("invent-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    $("invent-error").textContent = "";
    const name = $("class-name").value.trim();
    $("invent-submit").disabled = true;
    try {
      if (!name) throw new Error("Give the class a name.");
      if (state.classes.has(name)) throw new Error("There is a class of this name already; choose another one.");
      await invent(current, name);
    } catch (error) {
      $("invent-error").textContent = error.message;
    }
    $("invent-submit").disabled = false;
  });
}
