// Give it pictures: classes as places to drop pictures on, with undo; and your own classes, which can be removed.

import { api } from "./api.js";
import { DRAGGED } from "./cards.js";
import { images } from "./incoming.js";
import { $, announce, ask, attempt, dropTarget, el, plural, toast } from "./dom.js";
import { badge, glyph } from "./labels.js";
import { changes, classifyAgain, loadClasses, state } from "./state.js";

const shown = new Set(); // classes a visitor asked for; those with examples and one's own are always shown

async function after(text, undo = null) {
  await loadClasses();
  const changed = await classifyAgain();
  const effect = state.pictures.length ? ` ${plural(changed.length, "answer")} changed.` : "";
  toast(text + effect, undo);
}

/** Take back pictures given at once, or all of a class. */
const undoExamples = (name, id = null) =>
  attempt(async () => {
    await (id ? api.takeExamplesBack(id) : api.clearExamples(name));
    await after(`“${name}” is as it was.`);
  });

const give = (name, blobs) =>
  attempt(async () => {
    const { id } = await api.giveExamples(name, blobs);
    shown.add(name);
    await after(`“${name}” got ${plural(blobs.length, "picture")}.`, () => undoExamples(name, id));
  });

const remove = (name) =>
  attempt(async () => {
    await api.removeClass(name);
    shown.delete(name);
    await after(`“${name}” is gone.`);
    $("classes").focus(); // the button is gone too
  });

function takeDropped(name, transfer) {
  const picture = state.pictures.find((one) => String(one.id) === transfer.getData(DRAGGED));
  const blobs = picture ? [picture.blob] : images(transfer.files);
  if (blobs.length) give(name, blobs);
}

const takesPictures = () => state.model.takes_images && state.model.takes_examples;

const quiet = (text, label, onclick) =>
  el("button", { type: "button", class: "quiet", "aria-label": label, onclick }, text);

function row({ class: name, kind, examples }, number) {
  const id = `examples-${number}`;
  const picker = el("input", {
    class: "visually-hidden",
    type: "file",
    id,
    accept: "image/*",
    multiple: true,
    "aria-label": `Pictures for ${name}`,
    onchange: (event) => give(name, [...event.target.files]),
  });
  const ways = [
    el("span", { class: "small" }, examples ? `${plural(examples, "picture")} given` : "drop pictures here"),
    picker,
    el("label", { class: "button quiet", for: id, "aria-hidden": "true" }, "Choose files"),
    examples > 0 && quiet("Undo", `Undo the pictures given to ${name}`, () => undoExamples(name)),
  ];
  const item = el(
    "li",
    {},
    el("div", {}, glyph(name), el("span", {}, name), " ", badge(kind)),
    el(
      "div",
      { class: "row" },
      takesPictures() && ways,
      kind === "yours" && quiet("Remove", `Remove the class ${name}`, () => remove(name)),
    ),
  );
  if (takesPictures()) dropTarget(item, (transfer) => takeDropped(name, transfer));
  return item;
}

function draw() {
  const rows = [...state.classes.values()].filter(
    (one) => one.kind === "yours" || one.examples > 0 || shown.has(one.class),
  );
  const empty = el("li", { class: "empty" }, "The classes you invent appear here.");
  $("class-list").replaceChildren(...(rows.length ? rows.reverse().map(row) : [empty]));
  $("class-names").replaceChildren(...[...state.classes.keys()].map((name) => el("option", { value: name })));
}

/** The dialog that gives a picture to a class without dragging. */
export async function giveByName(picture) {
  $("give-name").value = picture.truth ?? "";
  if ((await ask($("give"))) !== "give") return;
  const name = $("give-name").value.trim();
  if (!state.classes.has(name)) toast(`There is no class “${name}”; invent it first.`);
  else await give(name, [picture.blob]);
}

export function setUpExamples() {
  changes.addEventListener("classes", draw);
  $("give-hint").hidden = $("pin-form").hidden = !takesPictures();
  if (takesPictures()) $("classes-title").textContent = "Give it pictures";
  $("pin-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = $("pin-name").value.trim();
    if (!state.classes.has(name)) {
      toast(name ? `There is no class “${name}”.` : "Type the name of a class.");
      return;
    }
    shown.add(name);
    $("pin-name").value = "";
    draw();
    announce(`${name} can be given pictures now.`);
  });
}
