/* Searches the timeline: by names and by what is known of bars, but not by whole stacks. It is searched when nothing was typed for a moment. */

/** Who types fast is not waited for, ms. */
const TYPING = 120;
/** A match that is narrower is zoomed to, until it has this share of the width; pixels. */
const NARROW = 4;
const SHARE = 1 / 16;

class Search {
  /** `go` selects a bar, `changed` has the view drawn with what was found. */
  constructor(view, go, changed) {
    this.view = view;
    this.go = go;
    this.changed = changed;
    this.input = byId("search");
    this.waiting = 0;
    this.input.addEventListener("input", () => {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.find(), TYPING);
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") {
        this.input.value = "";
        this.find();
        byId("tracks").focus();
      }
    });
    byId("search-next").addEventListener("click", () => this.step(1));
    byId("search-before").addEventListener("click", () => this.step(-1));
  }

  find() {
    clearTimeout(this.waiting);
    this.waiting = 0;
    const text = this.input.value.trim().toLowerCase();
    const matches = (look) => look.name.toLowerCase().includes(text)
      || look.args.some(([name, value]) => name !== "stack" && value.toLowerCase().includes(text));
    this.view.found = text ? this.view.timeline.looks.map(matches) : null;
    this.tell();
    this.changed();
  }

  /** Hands each match to `each`, with its number. */
  each(each) {
    for (const track of this.view.timeline.tracks) {
      for (let bar = 0; bar < track.bars; bar++) if (this.view.found[track.kind[bar]]) each(track, bar);
    }
  }

  tell() {
    if (!this.view.found) {
      byId("search-count").textContent = "";
      return;
    }
    const own = this.view.selected;
    let [all, before, isOne] = [0, 0, false];
    this.each((track, bar) => {
      all += 1;
      if (!own) return;
      if (track === own.track && bar === own.bar) isOne = true;
      else if (order(track, bar, own) < 0) before += 1;
    });
    byId("search-count").textContent = all === 0 ? "no match" : `${isOne ? `${thousands(before + 1)} of ` : ""}${thousands(all)} ${all === 1 ? "match" : "matches"}`;
  }

  /** Goes to the match after the selected bar, or before it; from the end to the other one. */
  step(direction) {
    if (this.waiting) this.find();
    if (!this.view.found) return;
    const own = this.view.selected || { track: null, bar: -1, time: this.view.from };
    let [best, first] = [null, null];
    const nearer = (track, bar, than) => !than || order(track, bar, than) * direction < 0;
    this.each((track, bar) => {
      const after = order(track, bar, own) * direction;
      if (after > 0 && nearer(track, bar, best)) best = { track, bar };
      if (nearer(track, bar, first)) first = { track, bar };
    });
    // Who is told of the bar that is selected has the matches told again.
    if (best || first) this.reach(best || first);
    else this.tell();
  }

  /** Selects a match, and shows so little time around it that it can be seen. */
  reach(place) {
    this.go(place);
    const { track, bar } = place;
    const length = Math.max(track.end[bar] - track.start[bar], this.view.timeline.unit_ns);
    if (this.view.x(track.start[bar] + length) - this.view.x(track.start[bar]) >= NARROW) return;
    const [middle, half] = [track.start[bar] + length / 2, length / SHARE / 2];
    this.view.show(middle - half, middle + half);
  }
}

/** How two bars stand in time, and where they begin together by their tracks. */
function order(track, bar, other) {
  const at = other.track ? other.track.start[other.bar] : other.time;
  if (track.start[bar] !== at) return track.start[bar] - at;
  return other.track ? track.first + bar - (other.track.first + other.bar) : 1;
}
