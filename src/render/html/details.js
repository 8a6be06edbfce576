/* What is known of a bar, and what is in a span of time. */

/** Names of a sum that are listed. */
const SUMMED = 30;
/** Arrows that are drawn of one call. */
const ARROWS = 200;

/** What a kind is: its name, how it looks, what else is known of it. */
function lookOf(timeline, kind) {
  const [name, category, moment, ...more] = kind;
  const text = (number) => timeline.texts[number];
  const args = [];
  for (let at = 0; at + 1 < more.length; at += 2) args.push([text(more[at]), text(more[at + 1])]);
  return {
    name: text(name), short: shortName(text(name)), category: text(category), moment: moment === 1, args,
    hue: hueOf(text(name), text(category)),
  };
}

/** The bar that caused this one. */
function causeOf(timeline, { track, bar }) {
  const number = track.cause ? track.cause[bar] : -1;
  return number < 0 ? null : barOfNumber(timeline, number);
}

/** The bars that this one caused, the first of them. */
function effectsOf(timeline, { track, bar }) {
  if (track.cause) return [];
  const number = track.first + bar;
  const effects = [];
  for (const stream of timeline.tracks.filter((stream) => stream.cause && stream.process === track.process)) {
    for (let at = stream.cause.indexOf(number); at >= 0 && effects.length < ARROWS; at = stream.cause.indexOf(number, at + 1)) {
      effects.push({ track: stream, bar: at });
    }
  }
  return effects.sort((a, b) => a.track.start[a.bar] - b.track.start[b.bar]);
}

/** Fills the details with those of a bar; `go` selects another one. */
function showBar(timeline, place, go) {
  const { track, bar } = place;
  const look = timeline.looks[track.kind[bar]];
  const [start, end] = [track.start[bar], track.end[bar]];
  const runs = track.count && track.count[bar] > 1;
  const pairs = [["Track", track.name], ["Begin", `${time(start)} after the begin (${thousands(start)} ns)`]];
  if (!look.moment) pairs.push(["Length", `${time(end - start)} (${thousands(end - start)} ns${timeline.unit_ns > 1 ? `, to ${time(timeline.unit_ns)}` : ""})`]);
  if (runs) pairs.push(["Run", `${thousands(track.count[bar])} bars, ${time(track.busy[bar])} together; the name is that of the longest`]);
  const stack = look.args.find(([name]) => name === "stack");
  pairs.push(["Category", look.category], ...look.args.filter(([name]) => name !== "stack").map(([name, value]) => [name, argText(name, value)]));
  const links = [];
  const link = (text, to) => links.push(element("button", { type: "button", click: () => go(to) }, text));
  const cause = causeOf(timeline, place);
  if (cause) {
    const call = timeline.looks[cause.track.kind[cause.bar]];
    pairs.push(["Since its call", time(start - cause.track.start[cause.bar])]);
    link(`Launched by ${call.short}`, cause);
    const why = call.args.find(([name]) => name === "stack");
    if (why && !stack) pairs.push(["Launched from", stackList(why[1])]);
  }
  const effects = effectsOf(timeline, place);
  if (effects.length > 0) {
    const first = effects[0];
    pairs.push(["Began on the GPU", `${time(first.track.start[first.bar] - start)} after the call began`]);
    link(`Launched ${timeline.looks[first.track.kind[first.bar]].short}${effects.length > 1 ? ` and ${effects.length - 1} more` : ""}`, first);
  }
  if (stack) pairs.push(["Stack", stackList(stack[1])]);
  byId("details").replaceChildren(element("h3", {}, look.name), terms(pairs), ...links);
}

/** Numbers of arguments are told as they are; sizes for people too, and streams as their tracks are called. */
function argText(name, value) {
  if (name === "stream" && /^\d{6,15}$/.test(value)) return identifier(Number(value));
  const large = name.includes("bytes") && /^\d{4,}$/.test(value);
  return large ? `${thousands(Number(value))} (${bytesText(Number(value))})` : value;
}

/** A short text of a bar, for the pointer. */
function barText(timeline, { track, bar }) {
  const look = timeline.looks[track.kind[bar]];
  const length = look.moment ? "" : `  ${time(track.end[bar] - track.start[bar])}`;
  return `${barName(track, bar, { short: look.name })}${length}`;
}

/** Fills the details with what begins in a span, by name. */
function showSpan(timeline, [from, to], zoom) {
  const sums = new Map();
  for (const track of timeline.tracks) {
    for (let bar = begun(track, from); bar < track.bars && track.start[bar] < to; bar++) {
      const look = timeline.looks[track.kind[bar]];
      const key = `${look.category}\n${look.name}`;
      const sum = sums.get(key) || { name: look.name, category: look.category, count: 0, ns: 0, most: 0 };
      const runs = track.count && track.count[bar] > 1;
      const ns = runs ? track.busy[bar] : track.end[bar] - track.start[bar];
      sum.count += runs ? track.count[bar] : 1;
      sum.ns += ns;
      sum.most = Math.max(sum.most, runs ? 0 : ns);
      sums.set(key, sum);
    }
  }
  const all = [...sums.values()].sort((a, b) => b.ns - a.ns);
  const rows = all.slice(0, SUMMED).map((sum) => [sum.name, sum.category, sum.count, sum.ns, sum.ns / sum.count]);
  const columns = [["name", "Name", "name"], ["category", "Category", "text"], ["count", "Bars", "count"], ["ns", "Together", "ns"], ["mean", "Mean", "ns"]];
  byId("details").replaceChildren(
    element("h3", {}, `${time(to - from)} from ${time(from)} on`),
    element("button", { type: "button", click: zoom }, "Zoom to it (F)"),
    rows.length === 0 ? element("p", {}, "Nothing begins in it.") : sortable({ title: "What begins in it", columns, rows, left_out: all.length - rows.length }));
}
