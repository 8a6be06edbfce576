/* Elements of the page. Whatever comes from a trace becomes text, never markup. */

/** The element with this id. */
const byId = (id) => document.getElementById(id);

/** A new element: attributes by name, then its children, texts among them. */
function element(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for drawings. */
function drawn(name, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A list of terms and what they are. */
function terms(pairs, className) {
  return element("dl", { class: className || null }, ...pairs.flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]));
}

/** A stack as a list, innermost first. */
function stackList(text) {
  return element("ol", { class: "stack" }, ...text.split(" < ").map((frame) => element("li", {}, frame)));
}

/** Notes as items of a list. */
function putNotes(list, notes) {
  list.replaceChildren(...notes.map((note) => element("li", {}, note)));
}
