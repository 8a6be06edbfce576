/* What stands below each other in the timeline: a head for each process, its tracks of bars, its values. */

const BAR_HEIGHT = 17;
const HEAD_HEIGHT = 24;
const LINE_HEIGHT = 46;
const LABEL_WIDTH = 230;
/** More tracks than these begin folded, but for the first processes. */
const OPEN_TRACKS = 80;

/** Puts all items in their places: {kind: head | track | line, top, height, track | line, group}. */
class Layout {
  constructor(timeline) {
    this.timeline = timeline;
    const isMemory = (line) => line.name.endsWith("in use");
    const group = (name, tracks, lines) => (
      { name, tracks, lines: lines.sort((a, b) => isMemory(b) - isMemory(a)), open: true }
    );
    this.groups = timeline.processes.map((process, at) => group(
      `${process.name} (pid ${process.pid})`,
      timeline.tracks.filter((track) => track.process === at),
      timeline.lines.filter((line) => line.process === at),
    ));
    const others = timeline.lines.filter((line) => line.process === null);
    if (others.length > 0) this.groups.push(group("Machine and devices", [], others));
    let open = 0;
    for (const of of this.groups) {
      open += of.tracks.length + of.lines.length;
      of.open = of === this.groups[0] || open <= OPEN_TRACKS;
    }
    this.place();
  }

  place() {
    this.items = [];
    let top = 0;
    const put = (item) => {
      this.items.push({ ...item, top });
      top += item.height;
    };
    for (const group of this.groups) {
      put({ kind: "head", group, height: HEAD_HEIGHT });
      if (!group.open) continue;
      group.tracks.forEach((track) => put({ kind: "track", group, track, height: track.rows * BAR_HEIGHT + 7 }));
      group.lines.forEach((line) => put({ kind: "line", group, line, height: LINE_HEIGHT }));
    }
    this.height = top;
  }

  /** The item at this height. */
  at(y) {
    return this.items.find((item) => y >= item.top && y < item.top + item.height);
  }

  /** Where a track stands; where its process is folded that one's head. */
  of(track) {
    return this.items.find((item) => item.track === track)
      || this.items.find((item) => item.kind === "head" && item.group.tracks.includes(track));
  }

  /** Writes the labels at the left; `changed` is called when a process is folded. */
  label(labels, changed) {
    const place = (made, item) => {
      made.style.top = `${item.top}px`;
      made.style.height = `${item.height}px`;
      return made;
    };
    const made = this.items.map((item) => {
      if (item.kind === "head") {
        const fold = () => {
          item.group.open = !item.group.open;
          changed();
        };
        return place(element("button", { type: "button", "aria-expanded": String(item.group.open), title: item.group.name, click: fold }, item.group.name), item);
      }
      const name = item.kind === "track" ? item.track.name : item.line.name;
      const below = item.kind === "line" ? element("small", {}, `up to ${valueText(item.line.most, item.line.unit)}${ownUnit(item.line.unit)}`) : null;
      return place(element("div", { title: name, class: item.height > 34 && !below ? "tall" : null }, name, below), item);
    });
    labels.replaceChildren(...made);
  }
}

/** A unit that numbers do not have of themselves. */
function ownUnit(unit) {
  return ["", "ns", "bytes", "%", "percent", "count"].includes(unit) ? "" : ` ${unit}`;
}

/** The first bar that may reach beyond a time. */
function firstBar(track, from) {
  let [low, high] = [0, track.reach.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (track.reach[middle] >= from) high = middle;
    else low = middle + 1;
  }
  return low * REACH;
}

/** How many bars of a track begin before a time. */
function begun(track, time) {
  let [low, high] = [0, track.bars];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (track.start[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The bar at a time in a row of a track, up to `near` away; -1 for none. */
function barAt(track, row, at, near) {
  let [best, distance] = [-1, near];
  for (let bar = firstBar(track, at - near); bar < track.bars && track.start[bar] <= at + near; bar++) {
    if (track.row[bar] !== row) continue;
    const away = Math.max(track.start[bar] - at, at - track.end[bar], 0);
    if (away < distance || (away === 0 && distance === 0) || (away === distance && best < 0)) [best, distance] = [bar, away];
  }
  return best;
}

/** The track that holds the bar of a number that counts through all, and its place there. */
function barOfNumber(timeline, number) {
  const track = timeline.tracks.find((track) => track.first <= number && number < track.first + track.bars);
  return track ? { track, bar: number - track.first } : null;
}
