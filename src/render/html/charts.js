/* Charts of quantities over time and of how long launches take. Lines differ in their dashes too; arrow keys read a chart out. */

const CHART = { width: 560, height: 190, left: 62, right: 10, top: 10, bottom: 24 };
/** Lines of a chart. */
const LINES = 6;

function showCharts(sections, steps, timeline) {
  const series = (name, title, options) => overTime(sections, name, title, options);
  const all = [
    series("gpu-utilisation", "GPU utilisation", { most: 100 }),
    timeline && queueChart(timeline.delays.queue),
    stepChart(steps),
    series("device-memory", "Device memory in use"),
    series("host-memory", "Host memory"),
    timeline && histogram("Launch calls: how long they take", timeline.delays.calls),
    timeline && histogram("Launch latency: from the call's begin to the work's begin on the GPU", timeline.delays.starts),
  ].filter(Boolean);
  const missing = ["This trace has nothing that a chart shows over time."];
  byId("charts").querySelector(".grid").replaceChildren(...(all.length > 0 ? all : missing.map((text) => element("p", { class: "quiet" }, text))));
}

/** The table of a quantity over time of an analysis: who, in one or more columns, when, how much. */
function overTime(sections, name, title, options = {}) {
  const table = sections.find((section) => section.name === name)?.tables.find((table) => table.key === "over_time");
  if (!table) return null;
  const [when, what] = [table.columns.length - 2, table.columns.length - 1];
  const lines = new Map();
  for (const row of table.rows) {
    const who = row.slice(0, when).filter((text) => text !== null).join(" ");
    lines.set(who, [...(lines.get(who) || []), [row[when], row[what] || 0]]);
  }
  return lineChart({ title, about: table.title, unit: table.columns[what][2], lines: [...lines], ...options });
}

function queueChart(queue) {
  if (!queue.means.length) return null;
  const points = queue.means.map((mean, at) => [queue.first_ns + (at + 0.5) * queue.cell_ns, mean]);
  return lineChart({ title: "Queue length", about: "Launches and copies that were given and not begun, mean of each part, all streams", unit: "count", lines: [["queued", points]] });
}

/** Steps of each process: when each ended, how long it took; of parts of many their mean, and the longest of each part. */
function stepChart(steps) {
  const whole = steps.every(([, each]) => each.every(([, mean, longest]) => mean === longest));
  const lines = steps.filter(([, each]) => each.length > 0).flatMap(([who, each]) => [
    [whole ? who : `${who}, mean`, each.map(([end, mean]) => [end, mean])],
    ...(whole ? [] : [[`${who}, longest`, each.map(([end, , longest]) => [end, longest])]]),
  ]);
  const about = whole ? "Each step where it ended, warm-up too" : "Parts of equally many steps where they ended, warm-up too";
  return lines.length > 0 ? lineChart({ title: "Step times", about, unit: "ns", lines }) : null;
}

/** A figure with a drawing that keys and pointer read out: `read` gives the text and the place of what is at a share of the width. */
function chartFigure({ title, about, label, children, legend, read }) {
  const { width, height, left, right, top, bottom } = CHART;
  const caption = element("figcaption", { "aria-live": "polite" }, about || "");
  const cursor = drawn("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": `${title}. ${label}` }, ...children, cursor);
  let share = 0;
  const tell = (to) => {
    share = Math.min(Math.max(to, 0), 1);
    const { text, x } = read(share);
    caption.textContent = text;
    for (const [key, value] of [["x1", x], ["x2", x], ["visibility", "visible"]]) cursor.setAttribute(key, value);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    tell((((event.clientX - box.left) / box.width) * width - left) / (width - left - right));
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    caption.textContent = about || "";
  });
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (!by) return;
    event.preventDefault();
    tell(share + by);
  });
  return element("figure", {}, element("h3", {}, title), svg, legend || null, caption);
}

/** Axes: round marks of the height with their units, and marks of the width. */
function axes(most, unit, across) {
  const { width, height, left, right, top, bottom } = CHART;
  const [heights] = marks(0, most * (unit === "bytes" ? 1 / scaleBytes(most)[1] : 1), 4);
  const up = heights.map((mark) => {
    const value = mark * (unit === "bytes" ? scaleBytes(most)[1] : 1);
    const y = height - bottom - (value / most) * (height - bottom - top);
    const text = drawn("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, valueText(value, unit));
    return [drawn("line", { class: "axis", x1: left, x2: width - right, y1: y, y2: y }), text];
  });
  const below = across.map(({ x, text }) => drawn("text", { x, y: height - 6, "text-anchor": x > width - 30 ? "end" : "middle" }, text));
  return [...up.flat(), ...below];
}

/** Marks of times, or of their powers of ten, below a chart. */
function marksBelow(from, to, x, powers) {
  const tens = (text) => text.replace(/\.0+ /, " ").replace(/(\.\d*[1-9])0+ /, "$1 ");
  if (!powers) return marks(from, to, 6)[0].map((at) => ({ x: x(at), text: tens(time(at)) }));
  const all = [];
  const between = to / from < 100 ? [1, 2, 5] : [1];
  for (let ns = 1; ns <= to; ns *= 10) all.push(...between.map((times) => ns * times));
  return all.filter((ns) => ns >= from && ns <= to).map((ns) => ({ x: x(ns), text: tens(time(ns)) }));
}

function lineChart({ title, about, unit, lines, most }) {
  const { width, height, left, right, top, bottom } = CHART;
  const shown = lines.slice(0, LINES);
  const all = shown.flatMap(([, points]) => points);
  const highest = most || Math.max(...all.map(([, value]) => value), 1e-9) * 1.05;
  const to = Math.max(...all.map(([at]) => at), 1);
  const from = Math.min(0, ...all.map(([at]) => at));
  const x = (at) => left + ((at - from) / (to - from)) * (width - left - right);
  const y = (value) => height - bottom - (Math.min(value, highest) / highest) * (height - bottom - top);
  // A single value holds.
  const ends = (points) => (points.length > 1 ? points : [points[0], [to, points[0][1]]]);
  const path = (points) => ends(points).map(([at, value], n) => `${n === 0 ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const drawings = shown.map(([, points], n) => drawn("path", { class: `line s${n}`, d: path(points) }));
  const key = (n) => drawn("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" }, drawn("path", { class: `line s${n}`, d: "M0 4L28 4" }));
  const names = shown.length > 1 || lines.length > 1 ? shown.map(([name], n) => element("li", {}, key(n), name)) : [];
  if (lines.length > LINES) names.push(element("li", {}, `and ${lines.length - LINES} more: see the tables`));
  const read = (share) => {
    const at = from + share * (to - from);
    const nearest = (points) => points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
    const texts = shown.map(([name, points]) => `${shown.length > 1 ? `${name} ` : ""}${valueText(nearest(points)[1], unit)}`);
    return { text: `${time(at)}: ${texts.join(", ")}`, x: x(at) };
  };
  const label = shown.map(([name, points]) => {
    const values = points.map(([, value]) => value);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    return `${name}: mean ${valueText(mean, unit)}, from ${valueText(Math.min(...values), unit)} to ${valueText(Math.max(...values), unit)}`;
  }).join("; ");
  return chartFigure({
    title, about, label, read, children: [...axes(highest, unit, marksBelow(from, to, x)), ...drawings],
    legend: names.length > 0 ? element("ul", { class: "legend" }, ...names) : null,
  });
}

/** How many were how long: classes of [from, to, count], on a scale of powers. */
function histogram(title, classes) {
  if (classes.length === 0) return null;
  const { width, height, left, right, top, bottom } = CHART;
  const all = classes.reduce((sum, [, , count]) => sum + count, 0);
  const most = Math.max(...classes.map(([, , count]) => count)) * 1.05;
  const log = (ns) => Math.log2(Math.max(ns, 1));
  const [from, to] = [log(classes[0][0]), log(classes[classes.length - 1][1])];
  const x = (ns) => left + ((log(ns) - from) / (to - from || 1)) * (width - left - right);
  const bars = classes.map(([least, end, count]) => {
    const high = (count / most) * (height - bottom - top);
    return drawn("rect", { class: "bar", x: x(least) + 0.5, width: Math.max(x(end) - x(least) - 1, 1), y: height - bottom - high, height: high });
  });
  let seen = 0;
  const median = classes.find(([, , count]) => (seen += count) >= all / 2);
  const about = `${thousands(all)} in all; half of them below ${time(median[1])}`;
  const read = (share) => {
    const ns = 2 ** (from + share * (to - from));
    const own = classes.find(([least, end]) => ns >= least && ns < end);
    const text = own ? `${time(own[0])} to ${time(own[1])}: ${thousands(own[2])} (${percent((100 * own[2]) / all)})` : `${time(ns)}: none`;
    return { text, x: x(ns) };
  };
  return chartFigure({ title, about, label: about, read, children: [...axes(most, "count", marksBelow(2 ** from, 2 ** to, x, true)), ...bars] });
}
