/* Ranks, or processes, side by side: any number that the tables have of each, with its distance from the median. */

const WHO = ["rank", "process"];
/** Numbers that say who it is and how it ended, not how much. */
const NO_MEASURE = ["rank", "pid", "exit_code", "exit_signal"];

/** What tells numbers of one name apart. */
const MEASURES = { ns: "time", percent: "%", bytes: "bytes", bytes_each: "bytes", bytes_per_s: "bytes a second", per_s: "a second", count: "number" };

/** Numbers that there is one of for each of several processes. */
function comparable(sections) {
  const found = [];
  for (const section of sections) {
    for (const table of section.tables) {
      const who = table.columns.findIndex(([key, , unit]) => WHO.includes(key) && unit === "text");
      const names = table.rows.map((row) => row[who]);
      if (who < 0 || names.length < 2 || new Set(names).size !== names.length || table.key === "clocks") continue;
      table.columns.forEach(([key, title, unit], at) => {
        const numbers = table.rows.filter((row) => typeof row[at] === "number");
        if (["text", "name", "stack", "id"].includes(unit) || NO_MEASURE.includes(key) || numbers.length < 2) return;
        found.push({ section, table, who, at, unit, title: `${section.title}: ${title}`, first: section.name === "ranks" });
      });
    }
  }
  return found.sort((a, b) => Number(b.first) - Number(a.first));
}

function showRanks(sections) {
  const all = comparable(sections);
  if (all.length === 0) return;
  const part = byId("ranks");
  const alone = (one) => all.filter((other) => other.title === one.title).length === 1;
  const inTable = (one) => all.filter((other) => other.title === one.title && other.table.title === one.table.title).length === 1;
  const label = (one) => {
    if (alone(one)) return one.title;
    return `${one.title} (${one.table.title}${inTable(one) ? "" : `; ${MEASURES[one.unit] || one.unit}`})`;
  };
  const options = all.map((one, at) => element("option", { value: at }, label(one)));
  const place = element("div", { class: "scroll" });
  const pick = element("select", { id: "rank-metric", change: () => place.replaceChildren(compared(all[pick.value])) }, ...options);
  const usual = all.findIndex((one) => one.table.columns[one.at][0].includes("p50_ns"));
  pick.value = Math.max(usual, 0);
  place.append(compared(all[pick.value]));
  part.append(element("p", {}, element("label", {}, "Compare ", pick)), place);
  part.hidden = false;
  document.querySelector('nav a[href="#ranks"]').hidden = false;
}

/** One number of all ranks, with a bar for each. */
function compared({ table, who, at, unit }) {
  const rows = table.rows.filter((row) => typeof row[at] === "number");
  const sorted = rows.map((row) => row[at]).sort((a, b) => a - b);
  // Of two in the middle the lower one, as the summary's median rank.
  const median = sorted[(sorted.length - 1) >> 1];
  const most = Math.max(...sorted.map(Math.abs), 1e-9);
  const line = (row) => {
    const filling = element("div", {});
    filling.style.width = `${(100 * Math.abs(row[at])) / most}%`;
    const off = median ? (100 * (row[at] - median)) / Math.abs(median) : 0;
    const offText = Math.abs(off) < 0.05 ? "median" : `${off > 0 ? "+" : "−"}${percent(Math.abs(off))}`;
    return element("tr", {},
      element("th", { scope: "row" }, String(row[who])),
      element("td", { class: "number" }, valueText(row[at], unit)),
      element("td", { class: "number" }, offText),
      element("td", {}, element("div", { class: "share", "aria-hidden": "true" }, filling)));
  };
  const heads = [table.columns[who][1], table.columns[at][1], "From the median", ""];
  return element("table", {},
    element("caption", {}, `${table.columns[at][1]}, ${table.title}`),
    element("thead", {}, element("tr", {}, ...heads.map((head, n) => (n < 3 ? element("th", { scope: "col" }, head) : element("td", {}))))),
    element("tbody", {}, ...rows.map(line)));
}
