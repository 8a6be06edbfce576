/* Colours of bars and frames: by their name, so that a kernel looks the same everywhere; a name always stands beside them. */

const HUES = [212, 28, 145, 276, 48, 330, 184, 8, 95, 250, 165, 305];
/** What is known by its category. */
const CATEGORY_HUES = { sync: 4, os_wait: -1, memcpy: 190, memset: 190, transfer: 190, recording: -1, collective: 300 };

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

/** What fills a bar of this hue; its text is the page's ink, with a contrast of 4.5 and more. */
function fillOf(hue) {
  if (hue < 0) return theme.dark ? "hsl(220 8% 30%)" : "hsl(220 10% 82%)";
  return theme.dark ? `hsl(${hue} 42% 29%)` : `hsl(${hue} 62% 77%)`;
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
