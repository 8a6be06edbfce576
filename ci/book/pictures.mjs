// Makes the book's pictures of report pages and of a terminal's screen.
//
// usage: node pictures.mjs NODE_MODULES CHROMIUM FOLDER SCREEN [PAGE STEP_NS]...
//
// SCREEN is what `tmux capture-pane -e -p` wrote. Of a page some steps in the middle of the run are shown, with the process's threads and streams.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, executablePath, folder, screen, ...pages] = process.argv.slice(2);
const { chromium } = createRequire(import.meta.url)(`${modules}/playwright-core`);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
/** Where in the run the shown part begins, far from the waits that end some steps, and how many steps it has; of some traces others. */
const PART = { at: 0.58, steps: 3.3 };
const PARTS = { "launches-bad": { at: 0.58, steps: 0.25 }, "launches-fixed": { at: 0.58, steps: 1.1 }, "host-fixed": { at: 0.51, steps: 3.3 } };
/** The page's own width, and twice the points: sharp where a display has them. */
const VIEW = { viewport: { width: 1000, height: 900 }, deviceScaleFactor: 1.6, colorScheme: "light" };

/** Playwright writes no WebP, the browser does. */
async function picture(page, name, clip) {
  const client = await page.context().newCDPSession(page);
  const { data } = await client.send("Page.captureScreenshot", { format: "webp", quality: 70, clip: { ...clip, scale: 1 }, captureBeyondViewport: true });
  writeFileSync(`${folder}/${name}.webp`, Buffer.from(data, "base64"));
}

async function opened(file) {
  const context = await browser.newContext(VIEW);
  const page = await context.newPage();
  await page.goto(pathToFileURL(file).href);
  await page.waitForSelector("body[data-ready]");
  return page;
}

/** Where an element stands in the page down to the end of another one, with some room around it. */
const place = (page, selector, last = selector) => page.evaluate(([selector, last]) => {
  const [box, end] = [selector, last].map((each) => document.querySelector(each).getBoundingClientRect());
  return { x: box.left - 6 + scrollX, y: box.top - 6 + scrollY, width: box.width + 12, height: end.bottom - box.top + 12 };
}, [selector, last]);

/** Shows some steps, as they begin on the GPU. */
const showSteps = (page, stepNs, { at, steps }) => page.evaluate(([stepNs, at, steps]) => {
  const view = timelineView;
  const streams = view.timeline.tracks.filter((track) => track.what === "stream" && track.bars > 9);
  const [stream] = streams.sort((a, b) => b.bars - a.bars);
  const name = (bar) => view.timeline.looks[stream.kind[bar]].name;
  let bar = Math.floor(stream.bars * at);
  const first = name(0);
  while (bar < stream.bars - 1 && name(bar) !== first) bar++;
  view.show(stream.start[bar] - stepNs * steps * 0.08, stream.start[bar] + stepNs * steps * 0.92);
  view.draw();
}, [stepNs, at, steps]);

/** The ruler, and below it the tracks of bars of the first process, without its curves. */
const tracks = (page) => page.evaluate(() => {
  const view = timelineView;
  const group = view.layout.groups[0];
  const items = view.layout.items.filter((item) => item.group === group && item.kind !== "line");
  const bottom = Math.max(...items.map((item) => item.top + item.height));
  const [ruler, bars] = [view.ruler.getBoundingClientRect(), view.canvas.getBoundingClientRect()];
  return { x: ruler.left + scrollX, y: ruler.top + scrollY, width: bars.right - ruler.left, height: bars.top - ruler.top + bottom };
});

for (let at = 0; at < pages.length; at += 2) {
  const [file, stepNs] = [pages[at], Number(pages[at + 1])];
  const name = basename(file, ".html");
  const page = await opened(file);
  await showSteps(page, stepNs, PARTS[name] || PART);
  if (name !== "demo-trace") {
    await picture(page, name, await tracks(page));
    await page.context().close();
    continue;
  }
  await picture(page, "findings", await place(page, "#findings", "#cards"));
  const [above, bars] = [await place(page, "#timeline", "#ruler"), await tracks(page)];
  // With the two curves of memory, which come first.
  await picture(page, "demo", { ...above, height: bars.y + bars.height - above.y + 92 });
  await picture(page, "timeline", bars);
  await picture(page, "charts", await place(page, "#charts", "#charts .grid > :nth-child(4)"));
  // What ended the longest gap nearby. Without curves, so that the bars and what is told of one fit into a picture.
  await page.evaluate(() => {
    const view = timelineView;
    for (const group of view.layout.groups.slice(1)) group.open = false;
    view.layout.groups[0].lines = [];
    view.layout.place();
    view.labels();
    const [stream] = view.timeline.tracks.filter((track) => track.what === "stream").sort((a, b) => b.bars - a.bars);
    const middle = begun(stream, (view.from + view.to) / 2);
    let [bar, gap] = [middle, 0];
    for (let each = middle; each < middle + 80; each++) {
      const before = stream.start[each] - stream.end[each - 1];
      if (before > gap && causeOf(view.timeline, { track: stream, bar: each })) [bar, gap] = [each, before];
    }
    view.select({ track: stream, bar });
    view.show(stream.start[bar] - gap * 1.3, stream.start[bar] + gap * 0.5);
    view.draw();
  });
  await picture(page, "arrow", { ...bars, height: (await place(page, "#ruler", "#details")).height });
  await page.context().close();
}

/** The screen of a terminal as HTML: colours and weights of SGR sequences, of 8, 16 and 256 colours. */
function terminal(text) {
  const eight = ["#24292f", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#c9d1d9"];
  const bright = ["#6e7681", "#ffa198", "#a5f3b0", "#f2cc60", "#a5d6ff", "#e2c5ff", "#b3f0ff", "#ffffff"];
  const cube = (of) => {
    if (of < 16) return [...eight, ...bright][of];
    if (of > 231) return `rgb(${Array(3).fill(8 + (of - 232) * 10)})`;
    return `rgb(${[36, 6, 1].map((by) => [0, 95, 135, 175, 215, 255][Math.floor((of - 16) / by) % 6])})`;
  };
  let look = {};
  const set = (codes) => {
    for (let at = 0; at < codes.length; at++) {
      const code = codes[at];
      if (code === 0) look = {};
      else if (code === 1) look.bold = true;
      else if (code === 2) look.dim = true;
      else if (code === 7) look.swapped = true;
      else if (code === 22) look.bold = look.dim = false;
      else if (code === 27) look.swapped = false;
      else if (code === 39) delete look.ink;
      else if (code === 49) delete look.paper;
      else if (code === 38 || code === 48) {
        const [kind, ...rest] = codes.slice(at + 1);
        look[code === 38 ? "ink" : "paper"] = kind === 5 ? cube(rest[0]) : `rgb(${rest.slice(0, 3)})`;
        at += kind === 5 ? 2 : 4;
      } else if (code >= 30 && code < 38) look.ink = eight[code - 30];
      else if (code >= 40 && code < 48) look.paper = eight[code - 40];
      else if (code >= 90 && code < 98) look.ink = bright[code - 90];
    }
  };
  const escaped = (part) => part.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const span = (part) => {
    let [ink, paper] = [look.ink || "#c9d1d9", look.paper || "#0d1117"];
    if (look.swapped) [ink, paper] = [paper, ink];
    return part && `<span style="color:${ink};background:${paper};font-weight:${look.bold ? 700 : 400};opacity:${look.dim ? 0.65 : 1}">${escaped(part)}</span>`;
  };
  const [head, ...parts] = text.split("\x1b[");
  const shown = parts.map((part) => {
    const [, codes, rest] = part.match(/^([\d;]*)m([^]*)$/) || [null, "", ""];
    set(codes.split(";").map(Number));
    return span(rest);
  });
  return `<pre style="margin:0;padding:12px;display:inline-block;background:#0d1117;font:13px/1.25 'DejaVu Sans Mono',monospace">${span(head)}${shown.join("")}</pre>`;
}

const context = await browser.newContext({ ...VIEW, viewport: { width: 1300, height: 700 } });
const page = await context.newPage();
await page.setContent(`<body style="margin:0">${terminal(readFileSync(screen, "utf8").trimEnd())}`);
await picture(page, "top", await page.evaluate(() => {
  const { width, height } = document.querySelector("pre").getBoundingClientRect();
  return { x: 0, y: 0, width, height };
}));
await browser.close();
