// Makes and changes elements. Text is always set as text, so nothing that a node tells becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an HTML element. `attributes` whose value is null or false are left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Makes an SVG element. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets the text of an element, and leaves it alone if it has that text: readers hear only changes. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets or removes an attribute. */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** A section with a heading. */
export function section(title, ...children) {
  const id = `h-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

/** A word with a colour: `ok`, `warn`, `bad` or `idle`. The word says it, too, for those who see no colour. */
export function badge(text, level) {
  return h("span", { class: `badge ${level}` }, text);
}

/** A list of names with figures. Returns the element and a function that sets the figures. */
export function facts(names) {
  const values = names.map((name) => [h("dt", {}, name), h("dd", {}, "–")]);
  const element = h("dl", { class: "facts" }, values.map((pair) => h("div", {}, pair)));
  // One that is null says nothing worth its room.
  const set = (texts) => names.forEach((name, at) => {
    setText(values[at][1], texts[name] ?? "–");
    values[at][1].parentElement.hidden = texts[name] === null;
  });
  return { element, set };
}
