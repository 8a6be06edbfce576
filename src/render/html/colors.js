/* Colours of bars and frames: by their name, so that a kernel looks the same everywhere; a name always stands beside them. */

const HUES = [200, 28, 145, 270, 60, 330, 188, 12, 95, 245, 160, 305];
/** What is known by its category. */
const CATEGORY_HUES = {
  launch: 212, sync: 4, transfer: 172, memcpy: 172, memset: 172, memory: 48, collective: 290, os_wait: -1, recording: -1,
};

/** Follows the theme of the page. */
const theme = {
  dark: false,
  /** Called when it changes. */
  watchers: [],
  set(dark) {
    theme.dark = dark;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    byId("theme").textContent = dark ? "Light" : "Dark";
    byId("theme").setAttribute("aria-label", `Change to the ${dark ? "light" : "dark"} theme`);
    theme.watchers.forEach((watcher) => watcher());
  },
  start() {
    const system = matchMedia("(prefers-color-scheme: dark)");
    theme.set(system.matches);
    system.addEventListener("change", () => theme.set(system.matches));
    byId("theme").addEventListener("click", () => theme.set(!theme.dark));
  },
};

/** A color of the style by its name. */
function cssColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The hue of a name; -1 is grey. */
function hueOf(name, category) {
  if (category in CATEGORY_HUES) return CATEGORY_HUES[category];
  let hash = 0;
  for (let at = 0; at < name.length; at++) hash = (Math.imul(hash, 31) + name.charCodeAt(at)) | 0;
  return HUES[Math.abs(hash) % HUES.length];
}

/** What is written on bars, in either theme: its contrast with each fill is 7 and more. */
const BAR_INK = "#14161a";

/** What fills a bar of this hue. */
function fillOf(hue) {
  if (hue < 0) return theme.dark ? "hsl(220 8% 60%)" : "hsl(220 10% 82%)";
  return theme.dark ? `hsl(${hue} 48% 66%)` : `hsl(${hue} 62% 78%)`;
}

/** A name that fits into bars: without arguments and parameters of templates. */
function shortName(name) {
  let depth = 0;
  let out = "";
  for (const c of name) {
    if (c === "<") depth += 1;
    else if (c === ">") depth = Math.max(depth - 1, 0);
    else if (c === "(" && depth === 0 && out) break;
    else if (depth === 0) out += c;
  }
  return out.replace(/^void /, "").trim() || name;
}
