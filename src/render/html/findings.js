/* What stands first: the verdict, key figures, and a card for each finding. */

function showFindings(about) {
  const traces = about.traces.join(", ");
  byId("whose").textContent = traces;
  byId("whose").title = traces;
  document.title = `gputrace: ${traces}`;
  byId("foot").textContent = `gputrace ${about.version}. This page is whole: it loads nothing and sends nothing.`;
  const lines = about.literal === null ? null : about.literal.split("\n");
  byId("head").textContent = lines ? lines[0].replace(/^gputrace: /, "") : "";
  const verdict = byId("verdict");
  if (about.verdict) verdict.append(element("strong", { class: about.verdict === "HEALTHY" ? "fine" : null }, about.verdict), ": ", about.verdict_text || "");
  else verdict.textContent = lines ? lines[1] || "" : "The summary was not asked for.";
  putNotes(byId("about-trace"), [...about.notes, ...about.problems, ...(about.summary_notes || [])]);
  const per = about.unit ? ` (numbers are per ${about.unit})` : "";
  byId("figures").setAttribute("aria-label", `Key figures${per}`);
  byId("figures").append(...about.figures.map(([title, value, unit]) => (
    element("div", {}, element("dt", {}, title), element("dd", {}, valueText(value, unit)))
  )));
  const table = about.findings;
  const rows = table ? table.rows.map((row) => Object.fromEntries(row.map((value, at) => [table.columns[at][0], value]))) : [];
  byId("cards").append(...rows.map(card));
  byId("fine").textContent = [
    about.verdict && rows.length === 0 ? "Nothing was found that is worth a change." : "",
    about.fine ? `Checked, fine: ${about.fine}.` : "",
  ].join(" ").trim();
  byId("terminal").querySelector("pre").textContent = about.literal || "";
  byId("terminal").hidden = !about.literal;
}

function card(finding) {
  const known = finding.gain_ns !== null;
  const gain = known ? `at most ${time(finding.gain_ns)} (${percent(finding.gain_percent)}) of a ${finding.gain_per}` : "gain not known";
  const filling = element("div", {});
  filling.style.width = `${Math.min(finding.gain_percent || 0, 100)}%`;
  return element("li", {},
    element("h3", {}, finding.title),
    element("div", { class: "gain" }, element("span", {}, gain), known ? element("div", { class: "meter", "aria-hidden": "true" }, filling) : null),
    element("p", {}, finding.evidence || ""),
    element("p", {}, element("strong", {}, "Try: "), finding.advice || ""),
    element("p", { class: "quiet" }, `effort ${finding.effort}; ${finding.process}; `, element("code", {}, finding.name)));
}
