/* Data blocks of the page, unpacked. src/export/page/columns.rs says how a timeline is written. */

/** The bytes of a block. */
async function inflated(id) {
  const element = document.getElementById(id);
  const text = element.textContent;
  element.textContent = "";
  const packed = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A block that is JSON. */
async function unpackedJson(id) {
  return JSON.parse(new TextDecoder().decode(await inflated(id)));
}

/** The stream of numbers behind a timeline's head. */
class Numbers {
  constructor(bytes, at) {
    this.bytes = bytes;
    this.at = at;
  }

  next() {
    const bytes = this.bytes;
    let byte = bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127;
    let scale = 128;
    do {
      byte = bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  }

  folded() {
    const value = this.next();
    return value % 2 === 1 ? -(value + 1) / 2 : value / 2;
  }
}

/** Bars between two stops of `reach`, which says how far the bars up to a place go. */
const REACH = 256;

/** A timeline: tracks of bars, lines of values; all times in ns from its base. */
function unpackTimeline(block) {
  const headBytes = new DataView(block.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(block.subarray(4, 4 + headBytes)));
  const numbers = new Numbers(block, 4 + headBytes);
  const lengths = new Float64Array(head.kinds.length);
  let first = 0;
  for (const track of head.tracks) {
    unpackTrack(track, numbers, head.unit_ns, lengths.fill(0));
    track.first = first;
    first += track.bars;
  }
  for (const line of head.lines) {
    let at = 0;
    let height = 0;
    line.at = Float64Array.from({ length: line.points }, () => (at += numbers.folded()) * head.unit_ns);
    line.value = Float64Array.from({ length: line.points }, () => ((height += numbers.folded()) / head.steps) * line.most);
  }
  head.bars = first;
  [head.from, head.to] = extent(head);
  head.lines.forEach((line) => (line.until = heldUntil(head, line)));
  return head;
}

function unpackTrack(track, numbers, unit, lengths) {
  const bars = track.bars;
  track.kind = Uint32Array.from({ length: bars }, () => numbers.next());
  track.start = new Float64Array(bars);
  track.end = new Float64Array(bars);
  // How long each is comes later in the stream than when it begins: begins are differences from ends.
  const gaps = Float64Array.from({ length: bars }, () => numbers.folded());
  let before = 0;
  for (let bar = 0; bar < bars; bar++) {
    const length = (lengths[track.kind[bar]] += numbers.folded());
    const start = before + gaps[bar];
    before = start + length;
    track.start[bar] = start * unit;
    track.end[bar] = before * unit;
  }
  track.cause = track.what === "stream" ? unpackCauses(bars, numbers) : null;
  track.count = track.busy = null;
  if (track.runs) {
    track.count = Uint32Array.from({ length: bars }, () => numbers.next() + 1);
    track.busy = Float64Array.from(track.count, (count) => (count > 1 ? numbers.next() * unit : 0));
  }
  stack(track);
}

/** Of each bar the number of the one that caused it, counted through all tracks; -1 where that is not known. */
function unpackCauses(bars, numbers) {
  let before = 0;
  return Int32Array.from({ length: bars }, () => {
    const value = numbers.next();
    if (value === 0) return -1;
    const folded = value - 1;
    const call = before + (folded % 2 === 1 ? -(folded + 1) / 2 : folded / 2);
    before = call + 1;
    return call;
  });
}

/** Gives each bar the first row that is free when it begins. */
function stack(track) {
  const ends = [];
  track.row = new Uint8Array(track.bars);
  track.reach = new Float64Array(Math.ceil(track.bars / REACH));
  let reach = 0;
  for (let bar = 0; bar < track.bars; bar++) {
    let row = 0;
    while (row < ends.length && ends[row] > track.start[bar] && row < 63) row += 1;
    ends[row] = track.end[bar];
    track.row[bar] = row;
    reach = Math.max(reach, track.end[bar]);
    track.reach[Math.floor(bar / REACH)] = reach;
  }
  track.rows = Math.max(ends.length, 1);
}

/** When the first thing begins, and the last one ends. */
function extent(timeline) {
  let [from, to] = [Infinity, -Infinity];
  for (const track of timeline.tracks.filter((track) => track.bars > 0)) {
    from = Math.min(from, track.start[0]);
    to = Math.max(to, track.reach[track.reach.length - 1]);
  }
  for (const line of timeline.lines.filter((line) => line.points > 0)) {
    from = Math.min(from, line.at[0]);
    to = Math.max(to, line.at[line.points - 1]);
  }
  return to > from ? [from, to] : [Math.min(from, 0) || 0, Math.max(to, 0) + 1000];
}

/** Until when the last value of a line is known: memory in use is until its process's last event, what was read until it was read. */
function heldUntil(timeline, line) {
  const last = line.points > 0 ? line.at[line.points - 1] : 0;
  if (!line.name.endsWith("in use")) return last;
  const own = timeline.tracks.filter((track) => track.process === line.process && track.bars > 0);
  return own.reduce((last, track) => Math.max(last, track.reach[track.reach.length - 1]), last);
}
