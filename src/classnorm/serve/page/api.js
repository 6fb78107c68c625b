// Requests to the server. Every failure is an Error whose message can be shown to the visitor.

import { $, ask } from "./dom.js";

const TOKEN = "classnorm-token";
const BUSY_TRIES = 4; // times to come back to a server that has too much to do
const REJECT = 0.01; // the share of known pictures that may be called unknown

// An address with #token=… logs in; the fragment is never sent to a server, and then leaves the address bar.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(TOKEN, given);
  history.replaceState(null, "", location.pathname);
}

async function send(path, options) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  try {
    return await fetch(path, { ...options, headers });
  } catch {
    throw new Error("The server does not answer; is it still running?");
  }
}

let asking = null;

async function askForToken() {
  asking ??= ask($("ask-token")).finally(() => (asking = null));
  await asking;
  sessionStorage.setItem(TOKEN, $("token").value);
}

async function respond(path, options) {
  let response = await send(path, options);
  for (let tries = 0; response.status === 401 || (response.status === 429 && tries < BUSY_TRIES); tries += 1) {
    if (response.status === 401) await askForToken();
    else await new Promise((resolve) => setTimeout(resolve, 1000 * Number(response.headers.get("Retry-After") ?? 1)));
    response = await send(path, options);
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error ?? `${options.method ?? "GET"} ${path}: ${response.status} ${response.statusText}`);
}

const json = async (path, options = {}) => (await respond(path, options)).json();

const post = (path, document) =>
  json(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(document) });

function upload(path, blobs, fields = {}) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  blobs.forEach((blob, number) => form.append("files", blob, blob.name ?? `picture-${number + 1}.png`));
  return json(path, { method: "POST", body: form });
}

const query = (path, values) => `${path}?${new URLSearchParams(values)}`;

export const api = {
  model: () => json("/model"),
  classes: async () => (await json("/classes")).classes,
  descriptor: async (name) => (await json(query("/classes", { name }))).classes[0].descriptor,
  addClass: (document) => post("/classes", document),
  removeClass: (name) => json(query("/classes", { name }), { method: "DELETE" }),
  predict: (blobs, top) => upload("/predict", blobs, { top, model: "all", reject: REJECT }),
  explain: async (blob) => (await upload("/explain", [blob])).explanations[0],
  giveExamples: (name, blobs) => upload("/examples", blobs, { class: name }),
  takeExamplesBack: (id) => json(query("/examples", { id }), { method: "DELETE" }),
  clearExamples: (name) => json(query("/examples", { class: name }), { method: "DELETE" }),
  map: () => json("/map"),
  thumbnail: async (name) => (await respond(query("/thumbnail", { class: name }), {})).blob(),
  save: (name) => post("/save", { name }),
  exported: async () => (await respond("/export.onnx", {})).blob(),
};
