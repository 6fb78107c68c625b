// Draw a letter with a mouse, pen or finger; it is recognised after every stroke.

import { api } from "./api.js";
import { bars } from "./cards.js";
import { $, announce, attempt, el } from "./dom.js";
import { addPictures, changes, character, state } from "./state.js";

const WIDTH = 0.075; // of the side: the stroke of a regular font at the size of the training pictures
const PAUSE = 350; // ms after a stroke before the drawing is sent

const strokes = []; // each a list of points [x, y] in parts of the side
let timer;
let asked = 0;

function paint() {
  const paper = $("paper");
  const pen = paper.getContext("2d");
  const side = paper.width;
  pen.clearRect(0, 0, side, side);
  pen.lineWidth = WIDTH * side;
  pen.lineCap = pen.lineJoin = "round";
  pen.strokeStyle = "#201c26";
  for (const stroke of strokes) {
    pen.beginPath();
    stroke.forEach(([x, y], index) => (index ? pen.lineTo(x * side, y * side) : pen.moveTo(x * side, y * side)));
    if (stroke.length === 1) pen.lineTo(stroke[0][0] * side + 0.1, stroke[0][1] * side); // a dot
    pen.stroke();
  }
  for (const id of ["stroke-undo", "paper-clear", "drawing-keep"]) $(id).disabled = strokes.length === 0;
}

/** The drawing as an opaque picture: black on white. */
function drawingBlob() {
  const paper = $("paper");
  const copy = el("canvas", { width: paper.width, height: paper.height });
  const pen = copy.getContext("2d");
  pen.fillStyle = "white";
  pen.fillRect(0, 0, copy.width, copy.height);
  pen.drawImage(paper, 0, 0);
  return new Promise((resolve) => copy.toBlob(resolve, "image/png"));
}

async function recognise() {
  const turn = ++asked;
  if (strokes.length === 0) return show([]);
  const answer = await attempt(async () => api.predict([await drawingBlob()], 4));
  if (!answer || turn !== asked) return; // a later drawing has been sent
  show(answer.predictions[0]);
}

function show(top) {
  $("guess").textContent = top.length ? (character(top[0].class) ?? "?") : "";
  $("guesses").replaceChildren(top.length ? bars(top) : "");
  if (top.length) announce(`The drawing looks like ${top[0].class}.`);
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(recognise, PAUSE);
}

/** Lines that a letter stands between, behind the drawing: they are not part of it. */
function showLines() {
  const { small, baseline } = state.model.glyphs.lines;
  const line = (height) => `linear-gradient(#2a5a9c66, #2a5a9c66) 0 ${100 * height}% / 100% 1px no-repeat`;
  $("paper").style.background = `${line(small)}, ${line(baseline)}, white`;
}

export function setUpDrawing() {
  const paper = $("paper");
  showLines();
  let stroke = null;
  const point = (event) => {
    const box = paper.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  paper.addEventListener("pointerdown", (event) => {
    clearTimeout(timer);
    paper.setPointerCapture(event.pointerId);
    stroke = [point(event)];
    strokes.push(stroke);
    paint();
  });
  paper.addEventListener("pointermove", (event) => {
    if (!stroke) return;
    stroke.push(point(event));
    paint();
  });
  for (const name of ["pointerup", "pointercancel"]) {
    paper.addEventListener(name, () => {
      stroke = null;
      later();
    });
  }
  $("stroke-undo").addEventListener("click", () => {
    strokes.pop();
    paint();
    recognise();
  });
  $("paper-clear").addEventListener("click", () => {
    strokes.length = 0;
    paint();
    recognise();
  });
  $("drawing-keep").addEventListener("click", () => attempt(async () => addPictures([await drawingBlob()])));
  changes.addEventListener("classes", () => strokes.length && recognise());
}
