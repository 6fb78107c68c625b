// Small helpers to build the page. Text is only ever set as text, so nothing a visitor types is read as HTML.

export const $ = (id) => document.getElementById(id);

/** An element: attributes, `on…` listeners, and children (elements or text; null and false are left out). */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null && child !== false));
  return node;
}

export const percent = (share) => (share > 0 && share < 0.01 ? "< 1 %" : `${Math.round(100 * share)} %`);

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** Say something to screen readers, without showing it. */
export function announce(text) {
  $("announcer").textContent = text;
}

let hiding;

/** Show a line at the bottom for a while, with an undo button if there is something to undo. */
export function toast(text, undo = null) {
  $("toast-text").textContent = text;
  $("toast-undo").hidden = !undo;
  $("toast-undo").onclick = () => {
    $("toast").hidden = true;
    undo();
  };
  $("toast").hidden = false;
  announce(text);
  clearTimeout(hiding);
  hiding = setTimeout(() => ($("toast").hidden = true), 9000);
}

/** Open a dialog; the value of the button that closed it, "" for Escape. */
export function ask(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true }));
}

/** Run what a visitor asked for; an error becomes a line on the page. */
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    toast(error.message);
    return undefined;
  }
}

/** Let files and pictures of this page be dropped on an element. */
export function dropTarget(node, take) {
  node.addEventListener("dragover", (event) => {
    event.preventDefault();
    node.classList.add("over");
  });
  node.addEventListener("dragleave", () => node.classList.remove("over"));
  node.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    node.classList.remove("over");
    take(event.dataTransfer);
  });
}
