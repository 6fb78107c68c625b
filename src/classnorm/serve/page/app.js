// Starts the page: asks what the model can do and sets up the parts that fit it.

import { api } from "./api.js";
import { setUpCards } from "./cards.js";
import { $, ask, attempt, el, plural, toast } from "./dom.js";
import { setUpDrawing } from "./drawing.js";
import { giveByName, setUpExamples } from "./examples.js";
import { setUpIncoming } from "./incoming.js";
import { setUpInvent } from "./invent.js";
import { setUpMap } from "./map.js";
import { changes, loadClasses, loadModel, state } from "./state.js";

function showModel() {
  const count = { seen: 0, unseen: 0, yours: 0 };
  for (const { kind } of state.classes.values()) count[kind] += 1;
  const { name, method } = state.model;
  const parts = [`${count.seen} seen`, `${count.unseen} unseen`, count.yours && `${count.yours} yours`].filter(Boolean);
  $("model-line").textContent = `${name} · ${method} · ${parts.join(", ")}`;
  const use = state.model.takes_images
    ? "Show it a picture, or invent a class of your own"
    : "Invent a class of your own";
  $("hero-line").textContent =
    `This model was trained on pictures of ${plural(count.seen, "class", "classes")} and knows ${count.unseen} more by ` +
    `their descriptions alone. ${use}: it competes at once, without training.`;
}

/** For models of letters: e and ◌́, both seen, make é, which is not. */
function showEquation() {
  const unseen = [...state.classes.values()]
    .filter(({ kind, character }) => kind === "unseen" && character?.normalize("NFD").length === 2)
    .map(({ character }) => character);
  if (!unseen.length) return;
  const letter = unseen[Math.floor(Math.random() * unseen.length)];
  const [base, accent] = letter.normalize("NFD");
  const tile = (text, caption, kind) => el("span", { class: `tile ${kind}` }, el("b", {}, text), caption);
  const tiles = [
    tile(base, "seen", "seen"),
    "+",
    tile(`◌${accent}`, "seen", "seen"),
    "=",
    tile(letter, "never seen", "unseen"),
  ];
  $("equation").replaceChildren(...tiles);
  $("equation").setAttribute(
    "aria-label",
    `The letter and the mark of ${letter} were seen; ${letter} itself never was.`,
  );
  $("equation").hidden = false;
}

async function save() {
  $("save-name").value = `${state.model.name.replace(/[^A-Za-z0-9_-]+/g, "-")}-mine`;
  if ((await ask($("save"))) !== "save") return;
  const { saved } = await api.save($("save-name").value.trim());
  toast(`Saved as ${saved}.`);
}

async function download() {
  const blob = await api.exported();
  const link = el("a", { href: URL.createObjectURL(blob), download: "model.onnx" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function setUpModelActions() {
  const { model, others, saving } = state;
  $("save-open").hidden = !saving;
  $("export").hidden = false;
  $("save-open").addEventListener("click", () => attempt(save));
  $("export").addEventListener("click", () => attempt(download));
  $("drop").hidden = !model.takes_images;
  $("no-images").hidden = model.takes_images;
  $("draw").hidden = !model.glyphs;
  $("compare-label").hidden = others.length === 0;
  $("compare-name").textContent = others.join(", ");
}

function hideEmptyParts() {
  const { takes_images: takesImages, takes_examples: takesExamples } = state.model;
  $("classes").hidden = $("invent").hidden && !(takesImages && takesExamples);
  for (const link of document.querySelectorAll("nav a")) link.hidden = $(link.hash.slice(1)).hidden;
}

async function start() {
  await loadModel();
  setUpModelActions();
  changes.addEventListener("classes", showModel);
  setUpExamples();
  setUpCards(giveByName);
  setUpIncoming();
  setUpMap((error) => toast(error.message));
  if (state.model.glyphs) setUpDrawing();
  await loadClasses();
  setUpInvent();
  hideEmptyParts();
  showEquation();
  document.documentElement.dataset.ready = "yes"; // for whoever waits for the page
}

attempt(start);
