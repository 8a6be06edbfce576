/* Every section of the report: numbers, tables to sort, notes, and how they are computed. Made when it is opened. */

/** Rows that are shown at first. */
const ROWS = 20;

function showTables(sections) {
  const part = byId("tables");
  for (const section of sections) {
    const rows = section.tables.reduce((sum, table) => sum + table.rows.length, 0);
    const about = rows > 0 ? ` (${count(section.tables.length)} ${section.tables.length === 1 ? "table" : "tables"})` : "";
    const details = element("details", { "data-name": section.name }, element("summary", {}, section.title, element("span", { class: "quiet" }, about)));
    details.addEventListener("toggle", () => details.append(...sectionParts(section)), { once: true });
    part.append(details);
  }
}

function sectionParts(section) {
  const facts = section.facts.filter(([, value]) => value !== null);
  const heads = ["What it is", "Units", "Limits", "Source"];
  return [
    facts.length > 0 ? terms(facts.map(([title, value, unit]) => [title, valueText(value, unit)]), "facts") : "",
    ...section.tables.map(sortable),
    element("ul", { class: "notes" }, ...section.notes.map((note) => element("li", {}, note))),
    element("details", {}, element("summary", {}, "How it is computed"), terms(heads.map((head, at) => [head, section.explain[at]]))),
  ];
}

/** A table whose heads sort it, which shows its first rows until all are asked for. */
function sortable(table) {
  const known = (at) => table.rows.some((row) => row[at] !== null);
  const columns = table.columns.map((column, at) => ({ column, at })).filter(({ column, at }) => known(at) && column[0] !== "stack_id");
  const texts = columns.map(({ column, at }) => columnText(column[1], column[2], table.rows.map((row) => row[at])));
  const isText = (unit) => ["text", "name", "stack"].includes(unit);
  let rows = table.rows;
  let most = ROWS;
  const body = element("tbody", {});
  const heads = columns.map(({ column, at }, n) => {
    const head = element("th", { scope: "col", class: isText(column[2]) ? null : "number" });
    head.append(column[2] === "stack" ? texts[n][0] : element("button", { type: "button", click: () => sort(head, at, isText(column[2])) }, texts[n][0]));
    return head;
  });
  const sort = (head, at, text) => {
    const rises = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "descending" : text;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", rises ? "ascending" : "descending");
    rows = [...table.rows].sort((a, b) => compareCells(a[at], b[at], rises ? 1 : -1));
    fill();
  };
  const cell = (row, { column, at }, n) => {
    if (column[2] === "stack" && row[at]) return element("td", {}, element("details", {}, element("summary", {}, "stack"), stackList(row[at])));
    return element("td", { class: isText(column[2]) ? null : "number" }, texts[n][1](row[at]));
  };
  const more = element("button", { type: "button", click: () => {
    most = most === ROWS ? Infinity : ROWS;
    fill();
  } });
  const fill = () => {
    body.replaceChildren(...rows.slice(0, most).map((row) => element("tr", {}, ...columns.map((column, n) => cell(row, column, n)))));
    more.textContent = most === ROWS ? `Show all ${thousands(rows.length)} rows` : `Show the first ${ROWS}`;
  };
  fill();
  more.hidden = rows.length <= ROWS;
  const left = table.left_out > 0 ? element("p", { class: "quiet" }, `${thousands(table.left_out)} more are not in this page.`) : null;
  return element("div", { class: "scroll" },
    element("table", {}, element("caption", {}, table.title), element("thead", {}, element("tr", {}, ...heads)), body), more, left);
}

/** Numbers by size, texts by letters; what is not known comes last either way. */
function compareCells(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return (a - b) * direction;
  return String(a).localeCompare(String(b), "en", { numeric: true }) * direction;
}
