// Elements from names, attributes and children. Text is always set as text.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "look") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(4)) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
export const clear = (element, ...children) => { element.replaceChildren(); return add(element, children); };
export const byId = (id) => document.getElementById(id);
// Hyphens of numbers, not those of words and dates.
export const minus = (text) => String(text).replace(/(?<![\w.)-])-(?=[\d.])|(?<=\de)-(?=\d)/g, "\u2212");
export const short = (number) => (number === null || number === undefined ? "" : minus(+(+number).toPrecision(4)));
export const many = (count, thing) => `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : "s"}`;

let serial = 0;
export const fresh = (word) => `${word}-${++serial}`;

export function field(label, control, message) {
  // A control with its label before it and room for a message beside it.
  control.id ||= fresh("field");
  const note = h("span", { class: "wrong", id: `${control.id}-wrong`, role: "alert" });
  control.setAttribute("aria-describedby", note.id);
  if (message) note.textContent = message;
  return h("span", { class: "field" }, h("label", { for: control.id }, label), control, note);
}

export function wrong(control, message) {
  const note = byId(`${control.id}-wrong`);
  if (note) note.textContent = message || "";
  if (message) control.setAttribute("aria-invalid", "true");
  else control.removeAttribute("aria-invalid");
}

export const options = (select, entries, chosen) =>
  clear(select, entries.map(([value, text]) => h("option", { value, selected: String(value) === String(chosen) }, text)));

export const scroll = (label, ...children) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, children);
export const say = (text) => { byId("status").textContent = text; };
