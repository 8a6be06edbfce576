/* Flame graphs, outermost frame at the top: of what was allocated, and of who waited. */

const FRAME_HEIGHT = 18;
/** Narrower frames are not drawn: a share of the width. */
const NARROWEST = 0.0015;

function showFlames(data) {
  if (data.graphs.length === 0) return;
  const part = byId("flames");
  const place = element("div", {});
  const show = () => place.replaceChildren(flame(data.graphs[pick.value], data.frames, find));
  const find = element("input", { type: "search", id: "flame-search", placeholder: "function or file", input: () => mark(place, find.value) });
  const pick = element("select", { id: "flame-of", change: show }, ...data.graphs.map((graph, at) => element("option", { value: at }, graph.title)));
  part.append(element("div", { class: "tools" }, element("label", {}, "Of ", pick), element("label", {}, "Find ", find)), place);
  part.hidden = false;
  document.querySelector('nav a[href="#flames"]').hidden = false;
  show();
}

/** The stacks as a tree, children of a frame largest first. */
function treeOf(graph, frames) {
  const node = (name, parent) => ({ name, parent, value: 0, children: new Map() });
  const root = node("all", null);
  for (const [value, ...stack] of graph.stacks) {
    let at = root;
    at.value += value;
    for (const number of stack) {
      if (!at.children.has(number)) at.children.set(number, node(frames[number], at));
      at = at.children.get(number);
      at.value += value;
    }
  }
  return root;
}

function flame(graph, frames, find) {
  const root = treeOf(graph, frames);
  const box = element("div", { class: "flame", role: "group", "aria-label": `${graph.title}. Arrow keys move between frames, Enter shows one in full width.` });
  const caption = element("p", { class: "quiet", "aria-live": "polite" });
  const tell = (node) => {
    const share = percent((100 * node.value) / root.value);
    caption.textContent = `${node.name}: ${graph.estimate ? "about " : ""}${valueText(node.value, graph.unit)}, ${share} of all`;
  };
  const zoom = (node) => {
    draw(node);
    tell(node);
    mark(box, find.value);
    box.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  };
  const draw = (node) => {
    const path = [];
    for (let at = node; at; at = at.parent) path.unshift(at);
    const made = path.map((at, depth) => frameOf(at, depth, 0, 1, at !== node));
    put(node, path.length - 1, 0, 1, made);
    box.style.height = `${(Math.max(...made.map((one) => one.depth)) + 1) * FRAME_HEIGHT + 2}px`;
    box.replaceChildren(...made.map((one) => one.button));
    made.forEach((one) => (one.button.tabIndex = one.node === node ? 0 : -1));
    box.onkeydown = (event) => move(event, made);
  };
  /** Adds the children of a frame that lies at this share of the width. */
  const put = (node, depth, left, width, made) => {
    let at = left;
    for (const child of [...node.children.values()].sort((a, b) => b.value - a.value)) {
      const own = (child.value / node.value) * width;
      if (own >= NARROWEST) {
        made.push(frameOf(child, depth + 1, at, own, false));
        put(child, depth + 1, at, own, made);
      }
      at += own;
    }
  };
  const frameOf = (node, depth, left, width, above) => {
    const text = `${node.name} ${valueText(node.value, graph.unit)}`;
    const on = { click: () => zoom(node), focus: () => tell(node), pointerenter: () => tell(node) };
    const button = element("button", { type: "button", "data-name": node.name.toLowerCase(), title: text, "aria-label": text, ...on }, node.name);
    if (above) button.className = "above";
    [button.style.left, button.style.width, button.style.top] = [`${left * 100}%`, `${width * 100}%`, `${depth * FRAME_HEIGHT}px`];
    button.style.background = fillOf(hueOf(node.name.replace(/:\d+\)$/, ""), ""));
    return { node, depth, left, width, button };
  };
  draw(root);
  tell(root);
  theme.watchers.push(() => box.isConnected && box.querySelectorAll("button").forEach((button) => {
    button.style.background = fillOf(hueOf(button.textContent.replace(/:\d+\)$/, ""), ""));
  }));
  const left = graph.left_out > 0 ? element("p", { class: "quiet" }, `${thousands(graph.left_out)} smaller stacks with ${valueText(graph.rest, graph.unit)} in all are left out.`) : null;
  const back = element("button", { type: "button", click: () => zoom(root) }, "All of it");
  return element("div", {}, box, caption, back, left);
}

/** Arrow keys: to the frame below, above, or beside. */
function move(event, made) {
  const own = made.find((one) => one.button === event.target);
  const beside = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!own || !beside) return;
  event.preventDefault();
  const [down, right] = beside;
  const middle = own.left + (down > 0 ? 1e-9 : own.width / 2);
  const next = down !== 0
    ? made.find((one) => one.depth === own.depth + down && one.left <= middle && one.left + one.width >= middle)
    : made.filter((one) => one.depth === own.depth && (one.left - own.left) * right > 0)
      .sort((a, b) => (a.left - b.left) * right)[0];
  if (!next) return;
  own.button.tabIndex = -1;
  next.button.tabIndex = 0;
  next.button.focus();
}

/** Marks the frames whose name has a text in it. */
function mark(place, text) {
  const wanted = text.trim().toLowerCase();
  place.querySelectorAll(".flame button, button[data-name]").forEach((button) => {
    button.classList.toggle("match", wanted !== "" && button.dataset.name.includes(wanted));
  });
}
