// The map of classes: prototypes in two dimensions, and where the pictures at hand lie.

import { api } from "./api.js";
import { $, el } from "./dom.js";
import { MARKS } from "./labels.js";
import { changes, character, state } from "./state.js";

const CROWD = 2000; // classes, from which on they are drawn smaller
const REACH = 18; // pixels within which the pointer finds a class

let points = []; // {class, kind, x, y}
let places = []; // {picture, x, y}
let view = { x: 0, y: 0, zoom: 1 };
let chosen = null;
let sought = null; // a class to find as soon as it is on the map
let colours = {};

const canvas = () => $("map-canvas");
const unit = () => (Math.min(canvas().clientWidth, canvas().clientHeight) / 2.15) * view.zoom;
const screen = ({ x, y }) => [
  canvas().clientWidth / 2 + (x - view.x) * unit(),
  canvas().clientHeight / 2 - (y - view.y) * unit(),
];

function readColours() {
  const style = getComputedStyle(document.documentElement);
  colours = Object.fromEntries(
    ["seen", "unseen", "yours", "ink", "card"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
  );
}

function drawPoint(pen, point, size) {
  const [x, y] = screen(point);
  const letter = character(point.class);
  pen.fillStyle = colours[point.kind];
  pen.globalAlpha = point.kind === "seen" ? 0.75 : 1;
  pen.font = letter ? `${point.kind === "seen" ? "" : "bold "}${size}px serif` : `${0.75 * size}px sans-serif`;
  pen.fillText(letter ?? MARKS[point.kind], x, y);
  if (letter && point.kind === "yours") pen.fillText("★", x + 0.7 * size, y - 0.7 * size);
  pen.globalAlpha = 1;
  if (point === chosen) {
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(x, y, size, 0, 2 * Math.PI);
    pen.stroke();
  }
}

function drawPlace(pen, place) {
  const [x, y] = screen(place);
  const { image } = place.picture;
  const side = 30;
  pen.strokeStyle = colours.ink;
  pen.lineWidth = 2;
  if (image.naturalWidth) pen.drawImage(image, x - side / 2, y - side / 2, side, side);
  pen.strokeRect(x - side / 2, y - side / 2, side, side);
}

let wanted = false;

/** Draw once before the next frame, however often it is asked for. */
function draw() {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(() => {
    wanted = false;
    const node = canvas();
    const ratio = devicePixelRatio || 1;
    node.width = node.clientWidth * ratio;
    node.height = node.clientHeight * ratio;
    const pen = node.getContext("2d");
    pen.scale(ratio, ratio);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const size = Math.min((points.length > CROWD ? 8 : 13) * Math.sqrt(view.zoom), 30);
    const order = { seen: 0, unseen: 1, yours: 2 };
    for (const point of [...points].sort((one, two) => order[one.kind] - order[two.kind])) drawPoint(pen, point, size);
    places.forEach((place) => drawPlace(pen, place));
  });
}

async function load() {
  points = (await api.map()).classes;
  chosen = points.find((point) => point.class === chosen?.class) ?? null;
  placePictures();
  find();
}

/** Put every picture where its best classes are on average, weighted by probability (as POST /map does). */
function placePictures() {
  const at = new Map(points.map((point) => [point.class, point]));
  places = state.pictures.flatMap((picture) => {
    const rows = (picture.top ?? []).filter((row) => at.has(row.class));
    const total = rows.reduce((sum, row) => sum + row.probability, 0);
    if (!total) return [];
    const mean = (axis) => rows.reduce((sum, row) => sum + row.probability * at.get(row.class)[axis], 0) / total;
    picture.image ??= el("img", { src: picture.url, onload: draw });
    return [{ picture, x: mean("x"), y: mean("y") }];
  });
  draw();
}

/** The class nearest to a place on the screen among `candidates`. */
function nearest(x, y, candidates = points) {
  let best = { distance: Infinity, point: null };
  for (const point of candidates) {
    const [px, py] = screen(point);
    const distance = Math.hypot(px - x, py - y);
    if (distance < best.distance) best = { distance, point };
  }
  return best;
}

const spoken = (point) => `${point.class} (${point.kind})`;

function choose(point) {
  chosen = point;
  const around = points
    .filter((other) => other !== point)
    .sort((one, two) => Math.hypot(one.x - point.x, one.y - point.y) - Math.hypot(two.x - point.x, two.y - point.y));
  $("map-said").textContent = `${spoken(point)}; near it: ${around.slice(0, 3).map(spoken).join(", ")}`;
  draw();
}

function zoom(factor, x = canvas().clientWidth / 2, y = canvas().clientHeight / 2) {
  const next = Math.min(Math.max(view.zoom * factor, 1), 40);
  const [cx, cy] = [x - canvas().clientWidth / 2, canvas().clientHeight / 2 - y];
  const old = unit();
  view.zoom = next;
  view.x += cx / old - cx / unit(); // what is under the pointer stays there
  view.y += cy / old - cy / unit();
  if (next === 1) view = { x: 0, y: 0, zoom: 1 };
  draw();
}

function tip(event) {
  const { offsetX: x, offsetY: y } = event;
  const { point, distance } = nearest(x, y);
  const place = places.find((one) => Math.hypot(...screen(one).map((value, axis) => value - [x, y][axis])) < REACH);
  const text = place ? `your picture: ${place.picture.top[0].class}` : distance < REACH ? spoken(point) : "";
  const node = $("map-tip");
  node.hidden = !text;
  node.textContent = text;
  node.style.left = `${Math.min(x + 12, canvas().clientWidth - Math.min(240, node.offsetWidth) - 4)}px`;
  node.style.top = `${y + 16}px`;
}

function follow() {
  const node = canvas();
  const pointers = new Map();
  let moved = false;
  const spread = () => {
    const [one, two] = [...pointers.values()];
    return Math.hypot(one.x - two.x, one.y - two.y);
  };
  node.addEventListener("pointerdown", (event) => {
    node.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    moved = false;
  });
  node.addEventListener("pointermove", (event) => {
    const last = pointers.get(event.pointerId);
    if (!last) return tip(event);
    const before = pointers.size === 2 ? spread() : 0;
    const [dx, dy] = [event.offsetX - last.x, event.offsetY - last.y];
    pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    moved ||= Math.hypot(dx, dy) > 3;
    if (pointers.size === 2) return zoom(spread() / before, event.offsetX, event.offsetY);
    view.x -= dx / unit();
    view.y += dy / unit();
    return draw();
  });
  node.addEventListener("pointerup", (event) => {
    pointers.delete(event.pointerId);
    const { point, distance } = nearest(event.offsetX, event.offsetY);
    if (!moved && distance < REACH) choose(point);
  });
  node.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
  node.addEventListener("pointerleave", () => ($("map-tip").hidden = true));
  node.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && document.activeElement !== node) return; // scrolling past the map is not zooming
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    },
    { passive: false },
  );
}

const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Arrow keys go to the nearest class within 45° of their direction. */
function step(direction) {
  const [x, y] = chosen ? screen(chosen) : [canvas().clientWidth / 2, canvas().clientHeight / 2];
  const ahead = points.filter((point) => {
    const [dx, dy] = screen(point).map((value, axis) => value - [x, y][axis]);
    const along = dx * direction[0] + dy * direction[1];
    return point !== chosen && along > 0 && along >= Math.abs(dx * direction[1] - dy * direction[0]);
  });
  const { point } = nearest(x, y, ahead);
  if (!point) return;
  choose(point);
  keepInView(point);
}

function keepInView(point) {
  const [x, y] = screen(point);
  if (x < 20 || y < 20 || x > canvas().clientWidth - 20 || y > canvas().clientHeight - 20)
    Object.assign(view, { x: point.x, y: point.y });
}

function find() {
  const point = points.find((one) => one.class === sought);
  if (!point) return;
  sought = null;
  Object.assign(view, { x: point.x, y: point.y, zoom: Math.max(view.zoom, 4) });
  choose(point);
}

export function setUpMap(failed) {
  readColours();
  follow();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    draw();
  });
  new ResizeObserver(draw).observe(canvas());
  $("zoom-in").addEventListener("click", () => zoom(1.6));
  $("zoom-out").addEventListener("click", () => zoom(1 / 1.6));
  $("zoom-reset").addEventListener("click", () => zoom(0));
  canvas().addEventListener("keydown", (event) => {
    const direction = DIRECTIONS[event.key];
    if (direction) step(direction);
    else if (event.key === "+" || event.key === "=") zoom(1.6);
    else if (event.key === "-") zoom(1 / 1.6);
    else return;
    event.preventDefault();
  });
  $("map-find").addEventListener("change", (event) => {
    sought = event.target.value;
    find();
  });
  changes.addEventListener("classes", () => load().catch(failed));
  changes.addEventListener("pictures", placePictures);
}
