// Opens pages of `report --format html` in headless Chromium and prints as JSON what a person would have met there, a line each.
//
// usage: node browse.mjs NODE_MODULES CHROMIUM [SHOTS=FOLDER] use|look|old FILE [use|look|old FILE]...
//
// look: what stands in it. use: the same, and what keys, mouse, search and tables do. old: as a browser without DecompressionStream shows it.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, executablePath, ...rest] = process.argv.slice(2);
const shots = rest[0].startsWith("SHOTS=") ? rest.shift().slice(6) : null;
const { chromium } = createRequire(import.meta.url)(`${modules}/playwright-core`);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });

/** Opens a page; what it complains about and what it asks for is gathered. */
async function opened(file, scheme, old) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, colorScheme: scheme });
  const page = await context.newPage();
  // Only what never comes is waited for so long.
  page.setDefaultTimeout(300000);
  const met = { complaints: [], requests: [] };
  page.on("console", (message) => met.complaints.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => met.complaints.push(String(error)));
  page.on("dialog", (dialog) => met.complaints.push(`dialog: ${dialog.message()}`));
  page.on("request", (request) => met.requests.push(request.url()));
  if (old) await page.addInitScript(() => delete window.DecompressionStream);
  const url = pathToFileURL(file).href;
  await page.goto(url);
  await page.waitForSelector(old ? "#trouble:not([hidden])" : "body[data-ready], #trouble:not([hidden])");
  met.requests = met.requests.filter((asked) => asked !== url);
  return { page, met, context };
}

/** What stands in a page. */
function standing(page) {
  return page.evaluate(() => {
    const shown = (id) => (document.getElementById(id).hidden ? null : document.getElementById(id).innerText);
    const named = (control) => control.getAttribute("aria-label") || control.innerText || control.title || control.labels?.[0]?.innerText;
    const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
    const timeline = window.timelineView?.timeline;
    const bars = {};
    for (const track of timeline?.tracks || []) {
      const of = (bars[track.what] ||= { count: 0, ns: 0 });
      for (let bar = 0; bar < track.bars; bar++) {
        of.count += track.count ? track.count[bar] : 1;
        of.ns += track.end[bar] - track.start[bar];
      }
    }
    return {
      title: document.title, head: shown("head"), trouble: shown("trouble"), verdict: shown("verdict"), findings: shown("cards"), figures: shown("figures"),
      notes: shown("about-trace"), timeline_notes: timeline ? document.getElementById("timeline-notes").innerText : null,
      ranks: shown("ranks"), charts: shown("charts"), flames: shown("flames"), tables: shown("tables"),
      labels: document.getElementById("labels").innerText,
      foreign: document.querySelectorAll("img, iframe, object, embed, link, form, script[src]").length, evil: String(window.evil),
      nameless: [...document.querySelectorAll("button, input, select, svg[role=img], [role=application]")].filter((control) => !named(control)).length,
      twice: ids.filter((id, at) => ids.indexOf(id) !== at),
      bars, unit_ns: timeline?.unit_ns, painted_ms: Number(document.body.dataset.painted),
    };
  });
}

/** The worst contrast of what is written, with what it is written on. */
function contrast(page) {
  return page.evaluate(() => {
    const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const luminance = (color) => {
      probe.fillStyle = color;
      probe.fillRect(0, 0, 1, 1);
      const [r, g, b] = [...probe.getImageData(0, 0, 1, 1).data].map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (a, b) => {
      const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
      return (high + 0.05) / (low + 0.05);
    };
    const inks = ["--ink", "--quiet", "--accent"].flatMap((ink) => ["--paper", "--card", "--label"].map((paper) => [ink, paper]));
    const texts = [...inks, ["--warn", "--paper"], ["--warn", "--warn-paper"]].map((pair) => ratio(...pair.map(cssColor)));
    const bars = [-1, ...HUES, ...Object.values(CATEGORY_HUES)].map((hue) => ratio(fillOf(hue), BAR_INK));
    const lines = ["--s0", "--s1", "--s2", "--s3", "--s4", "--s5"].map((line) => ratio(cssColor(line), cssColor("--card")));
    return { texts: Math.min(...texts), bars: Math.min(...bars), lines: Math.min(...lines) };
  });
}

/** What the canvas of the tracks shows. */
const picture = (page) => page.evaluate(() => {
  timelineView.draw();
  return timelineView.canvas.toDataURL();
});

const span = (page) => page.evaluate(() => [timelineView.from, timelineView.to]);
const details = (page) => page.innerText("#details");

/** Where the middle of the first bar that has a name and a stack, or only a name, is on the screen; it is brought into view before. */
const placeOf = (page, name, withStack) => page.evaluate(([name, withStack]) => {
  const view = timelineView;
  const fits = (look) => look.name.includes(name) && (!withStack || look.args.some(([key]) => key === "stack"));
  for (const track of view.timeline.tracks) {
    for (let bar = 0; bar < track.bars; bar++) {
      if (!fits(view.timeline.looks[track.kind[bar]])) continue;
      view.select({ track, bar });
      view.focus();
      view.select(null);
      view.draw();
      const box = view.canvas.getBoundingClientRect();
      const item = view.layout.of(track);
      const x = view.x((track.start[bar] + track.end[bar]) / 2);
      return [box.left + x, box.top + item.top - view.scroller.scrollTop + 3 + (track.row[bar] + 0.4) * BAR_HEIGHT];
    }
  }
  return null;
}, [name, withStack]);

/** What `/` does before the timeline was ever seen, in a small window: whether the search is in it, the match, and how far from another field. */
async function searches({ page }) {
  const size = page.viewportSize();
  await page.setViewportSize({ width: 1280, height: 720 });
  await page.evaluate(() => scrollTo(0, 0));
  const hidden = await page.evaluate(() => document.getElementById("tracks").getBoundingClientRect().top >= innerHeight);
  const visible = (box) => page.evaluate(([top, bottom]) => top >= document.querySelector("header").getBoundingClientRect().bottom && bottom <= innerHeight, box);
  const input = () => page.evaluate(() => {
    const { top, bottom } = document.getElementById("search").getBoundingClientRect();
    return [top, bottom];
  });
  const match = () => page.evaluate(() => {
    const { selected, layout, scroller } = timelineView;
    if (!selected) return [-1, -1];
    const { top, height } = scroller.getBoundingClientRect();
    const at = layout.of(selected.track).top + selected.track.row[selected.bar] * BAR_HEIGHT - scroller.scrollTop;
    return at < 0 || at + BAR_HEIGHT > height ? [-1, -1] : [top + at, top + at + BAR_HEIGHT];
  });
  await page.keyboard.press("/");
  const found = { hidden, input: await visible(await input()) };
  await page.keyboard.type("gemm");
  await page.keyboard.press("Enter");
  found.match = await visible(await match());
  // The page may be anywhere when the next one is asked for.
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  await page.keyboard.press("Enter");
  found.next = await visible(await match());
  await page.keyboard.press("Escape");
  // In another field it is a letter.
  await page.focus("#flame-of");
  await page.keyboard.press("/");
  found.elsewhere = await page.evaluate(() => document.activeElement.id);
  await page.evaluate(() => {
    timelineView.select(null);
    timelineView.all();
    scrollTo(0, 0);
  });
  await page.setViewportSize(size);
  return found;
}

async function uses({ page }) {
  const seen = { searches: await searches({ page }) };
  await page.locator("#stage").scrollIntoViewIfNeeded();
  const box = await page.locator("#bars").boundingBox();
  const middle = [box.x + 700, box.y + 60];
  const shot = (name) => (shots ? page.screenshot({ path: `${shots}/${name}.png` }) : null);
  await shot("timeline");
  const whole = await span(page);
  const moved = async (act) => {
    const before = [await span(page), await picture(page)];
    await act();
    // A wheel's turn arrives when it arrives.
    await page.waitForFunction(([from, to]) => timelineView.from !== from || timelineView.to !== to, before[0]);
    const after = await span(page);
    const length = ([from, to]) => to - from;
    return { zoom: length(before[0]) / length(after), by: (after[0] - before[0][0]) / length(before[0]), redrawn: (await picture(page)) !== before[1] };
  };
  await page.mouse.move(...middle);
  seen.wheel = await moved(async () => {
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -400);
    await page.keyboard.up("Control");
  });
  seen.sideways = await moved(async () => {
    await page.keyboard.down("Shift");
    await page.mouse.wheel(0, 200);
    await page.keyboard.up("Shift");
  });
  seen.drag = await moved(async () => {
    await page.mouse.move(...middle);
    await page.mouse.down();
    await page.mouse.move(middle[0] + 200, middle[1], { steps: 4 });
    await page.mouse.up();
  });
  await page.focus("#tracks");
  for (const key of ["w", "s", "a", "d"]) seen[key] = await moved(() => page.keyboard.press(key));
  seen.button = await moved(() => page.click("#zoom-in"));
  await page.click("#zoom-all");
  seen.all = JSON.stringify(await span(page)) === JSON.stringify(whole);

  await page.mouse.move(box.x + 240, middle[1]);
  await page.keyboard.down("Shift");
  await page.mouse.down();
  await page.mouse.move(box.x + box.width - 4, middle[1], { steps: 4 });
  await page.mouse.up();
  await page.keyboard.up("Shift");
  seen.sum = await details(page);
  await page.keyboard.press("Escape");

  const click = async (name, withStack) => {
    const place = await placeOf(page, name, withStack);
    if (place) await page.mouse.click(...place);
    return details(page);
  };
  seen.wait = await click("cuStreamSynchronize", true);
  seen.launch = await click("cuLaunchKernel", false);
  const bare = await page.evaluate(() => timelineView.arrows().length);
  const without = await picture(page);
  await page.keyboard.press("]");
  seen.kernel = await details(page);
  seen.arrows = [bare, await page.evaluate(() => timelineView.arrows().length)];
  await page.focus("#tracks");
  for (let times = 0; times < 8; times++) await page.keyboard.press("s");
  await shot("arrow");
  seen.redrawn = (await picture(page)) !== without;
  await page.keyboard.press("[");
  seen.back = (await details(page)) === seen.launch;
  await page.keyboard.press("ArrowRight");
  seen.next = await details(page);

  await page.keyboard.press("/");
  const searched = () => page.waitForFunction(() => timelineView.search.waiting === 0);
  await page.keyboard.type("TORTURE");
  await searched();
  seen.found = await page.innerText("#search-count");
  await page.keyboard.press("Enter");
  seen.match = [await page.innerText("#search-count"), await details(page)];
  seen.reached = await page.evaluate(() => {
    const { selected: { track, bar }, from, to } = timelineView;
    return [track.start[bar] >= from && track.end[bar] <= to, timelineView.x(track.end[bar]) - timelineView.x(track.start[bar])];
  });
  await shot("search");
  // All that is found at once: each pixel is drawn once, however many matches share it.
  await page.keyboard.press("Escape");
  seen.drawn = await page.evaluate(() => {
    timelineView.all();
    const draws = () => {
      let rectangles = 0;
      const context = timelineView.canvas.getContext("2d");
      context.fillRect = function (...told) {
        rectangles += 1;
        CanvasRenderingContext2D.prototype.fillRect.apply(this, told);
      };
      timelineView.draw();
      delete context.fillRect;
      return rectangles;
    };
    timelineView.found = null;
    const plain = draws();
    timelineView.found = timelineView.timeline.looks.map(() => true);
    const found = draws();
    timelineView.found = null;
    return [plain, found];
  });
  await page.fill("#search", "there is no such thing");
  await searched();
  seen.none = await page.innerText("#search-count");
  await page.focus("#search");
  await page.keyboard.press("Escape");
  seen.over = await page.innerText("#search-count");

  const dark = await picture(page);
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await paper();
  await page.click("#theme");
  seen.theme = [before, await paper(), (await picture(page)) !== dark];
  await page.click("#theme");

  const kernels = page.locator('#tables details[data-name="kernels"]');
  await kernels.locator(":scope > summary").click();
  const head = kernels.locator("table").first().locator("th", { hasText: "Calls" });
  const column = async () => {
    const at = await head.evaluate((cell) => cell.cellIndex);
    return kernels.locator("table").first().locator("tbody tr").evaluateAll((rows, at) => rows.map((row) => row.cells[at].innerText), at);
  };
  await head.locator("button").click();
  seen.falling = [await head.getAttribute("aria-sort"), await column()];
  await head.locator("button").press("Enter");
  seen.rising = [await head.getAttribute("aria-sort"), await column()];

  const pick = page.locator("#flame-of");
  seen.graphs = await pick.locator("option").allInnerTexts();
  await pick.selectOption({ label: "Waits for the GPU" });
  await page.locator("#flames").scrollIntoViewIfNeeded();
  const frames = page.locator(".flame button");
  seen.frames = await frames.allInnerTexts();
  await frames.filter({ hasText: "item" }).first().click();
  seen.frame = await page.innerText("#flames p.quiet >> nth=0");
  await shot("flames");
  seen.metrics = await page.locator("#rank-metric option").allInnerTexts();
  await page.locator("#charts").scrollIntoViewIfNeeded();
  const chart = page.locator("#charts svg[role=img]").first();
  await chart.focus();
  await chart.press("ArrowRight");
  seen.caption = await page.innerText("#charts figcaption >> nth=0");
  seen.chart = await chart.getAttribute("aria-label");
  await page.evaluate(() => scrollTo(0, 0));
  await shot("top");
  seen.streams = await page.evaluate(() => ["7", "2199023255568"].map((stream) => argText("stream", stream)));
  await page.setViewportSize({ width: 320, height: 700 });
  seen.narrow = await page.evaluate(() => {
    for (const part of document.querySelectorAll("details")) part.open = true;
    return document.documentElement.scrollWidth;
  });
  return seen;
}

for (let at = 0; at < rest.length; at += 2) {
  const [what, file] = [rest[at], rest[at + 1]];
  const schemes = what === "old" ? ["light"] : ["light", "dark"];
  for (const scheme of schemes) {
    const one = await opened(file, scheme, what === "old");
    const found = { what, file, scheme, ...(await standing(one.page)), contrast: await contrast(one.page) };
    if (what === "use" && scheme === "dark") found.uses = await uses(one);
    if (shots && what === "use") await one.page.screenshot({ path: `${shots}/page-${scheme}.png`, fullPage: true });
    console.log(JSON.stringify({ ...found, ...one.met }));
    await one.context.close();
  }
}
await browser.close();
