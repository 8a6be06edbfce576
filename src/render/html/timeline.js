/* The timeline: what is seen of it, and what keys and mouse do. */

/** Of the shown span, for a key. */
const ZOOM = 1.35;
const PAN = 0.15;
/** No less is shown, ns. */
const LEAST_SPAN = 20;

class TimelineView {
  constructor(timeline) {
    this.timeline = timeline;
    timeline.looks = timeline.kinds.map((kind) => lookOf(timeline, kind));
    this.layout = new Layout(timeline);
    [this.overview, this.ruler, this.canvas, this.scroller] = ["overview", "ruler", "bars", "tracks"].map(byId);
    this.selected = this.chosen = this.found = null;
    [this.from, this.to] = [timeline.from, timeline.to];
    this.search = new Search(this, (place) => this.select(place), () => this.redraw());
    this.listen();
    this.labels();
    putNotes(byId("timeline-notes"), timeline.notes);
    theme.watchers.push(() => {
      this.colors = null;
      this.redraw();
    });
    new ResizeObserver(() => this.redraw()).observe(this.scroller);
    this.draw();
  }

  labels() {
    byId("space").style.height = `${this.layout.height}px`;
    this.scroller.style.maxHeight = `${Math.max(this.layout.height + 2, 60)}px`;
    this.layout.label(byId("labels"), () => {
      this.layout.place();
      this.labels();
      this.redraw();
    });
  }

  redraw() {
    this.waiting = this.waiting || requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    this.width = this.scroller.clientWidth;
    this.viewHeight = this.scroller.clientHeight;
    this.scroll = this.scroller.scrollTop;
    this.colors = this.colors || palette();
    drawOverview(this, this.colors);
    drawRuler(this, this.colors);
    drawTracks(this, this.colors);
    byId("span").textContent = `${time(this.to - this.from)} shown`;
  }

  /** Where a time stands. */
  x(at) {
    return LABEL_WIDTH + ((at - this.from) / (this.to - this.from)) * (this.width - LABEL_WIDTH);
  }

  /** The time at a place. */
  at(x) {
    return this.from + ((x - LABEL_WIDTH) / Math.max(this.width - LABEL_WIDTH, 1)) * (this.to - this.from);
  }

  show(from, to) {
    const all = this.timeline.to - this.timeline.from;
    const span = Math.min(Math.max(to - from, LEAST_SPAN), all * 1.1);
    const middle = (from + to) / 2;
    const begin = Math.min(Math.max(middle - span / 2, this.timeline.from - all * 0.05), this.timeline.to + all * 0.05 - span);
    [this.from, this.to] = [begin, begin + span];
    byId("hover").hidden = true;
    this.redraw();
  }

  zoom(times, about = (this.from + this.to) / 2) {
    const span = Math.min(Math.max((this.to - this.from) / times, LEAST_SPAN), (this.timeline.to - this.timeline.from) * 1.1);
    const share = (about - this.from) / (this.to - this.from);
    this.show(about - span * share, about + span * (1 - share));
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  all() {
    this.show(this.timeline.from, this.timeline.to);
  }

  /** Zooms to what is selected. */
  focus() {
    if (this.chosen) this.show(...this.chosen);
    else if (this.selected) {
      const { track, bar } = this.selected;
      const room = Math.max(track.end[bar] - track.start[bar], this.timeline.unit_ns) * 0.5;
      this.show(track.start[bar] - room, track.end[bar] + room);
    }
  }

  /** Selects a bar, none with null, and brings it into view. */
  select(place) {
    this.selected = place;
    this.chosen = null;
    if (!place) byId("details").replaceChildren(element("p", { class: "quiet" }, "Click a bar for its details."));
    else {
      showBar(this.timeline, place, (to) => this.select(to));
      this.reveal(place);
    }
    this.search.tell();
    this.redraw();
  }

  reveal({ track, bar }) {
    const [start, end] = [track.start[bar], track.end[bar]];
    if (end < this.from || start > this.to || (start < this.from && end > this.to && end - start > (this.to - this.from) * 50)) {
      const half = (this.to - this.from) / 2;
      this.show(start - half, start + half);
    }
    const item = this.layout.of(track);
    const top = item.top + (item.kind === "head" ? 0 : track.row[bar] * BAR_HEIGHT);
    const [scroll, height] = [this.scroller.scrollTop, this.scroller.clientHeight];
    if (top < scroll || top + 2 * BAR_HEIGHT > scroll + height) this.scroller.scrollTop = Math.max(top - height / 2, 0);
    const at = this.scroller.getBoundingClientRect().top + top - this.scroller.scrollTop;
    this.bring(at, at + 2 * BAR_HEIGHT);
  }

  /** Scrolls the page so that what stands from one height of the window to another is seen: with the tools above, or else in its middle. */
  bring(top, bottom) {
    const first = document.querySelector("header").getBoundingClientRect().bottom;
    const seen = (by) => top - by >= first && bottom - by <= innerHeight;
    if (seen(0)) return;
    const whole = byId("timeline").getBoundingClientRect().top - first;
    scrollBy({ top: seen(whole) ? whole : (top + bottom - first - innerHeight) / 2, behavior: "instant" });
  }

  /** Goes to the search, from wherever the page was scrolled to. */
  find() {
    this.search.input.focus({ preventScroll: true });
    const box = byId("stage").getBoundingClientRect();
    const tools = this.search.input.getBoundingClientRect();
    this.bring(tools.top, Math.min(box.bottom, tools.top + innerHeight / 2));
  }

  choose(from, to) {
    this.selected = null;
    this.chosen = [Math.min(from, to), Math.max(from, to)];
    showSpan(this.timeline, this.chosen, () => this.focus());
    this.redraw();
  }

  /** Pairs of bars that an arrow leads between. */
  arrows() {
    if (!this.selected) return [];
    const cause = causeOf(this.timeline, this.selected);
    if (this.arrowsOf !== this.selected) [this.arrowsOf, this.effects] = [this.selected, effectsOf(this.timeline, this.selected)];
    return [...(cause ? [[cause, this.selected]] : []), ...this.effects.map((effect) => [this.selected, effect])];
  }

  /** The bar under a pointer. */
  hit(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top + this.scroller.scrollTop];
    const item = this.layout.at(y);
    if (x < LABEL_WIDTH || !item || item.kind !== "track") return { item, x };
    const row = Math.floor((y - item.top - 3) / BAR_HEIGHT);
    const near = ((this.to - this.from) / this.width) * 3;
    const bar = barAt(item.track, row, this.at(x), near);
    return bar < 0 ? { item, x } : { item, x, place: { track: item.track, bar } };
  }

  listen() {
    const click = (id, what) => byId(id).addEventListener("click", what);
    click("zoom-in", () => this.zoom(ZOOM));
    click("zoom-out", () => this.zoom(1 / ZOOM));
    click("pan-left", () => this.pan(-PAN));
    click("pan-right", () => this.pan(PAN));
    click("zoom-all", () => this.all());
    this.scroller.addEventListener("scroll", () => this.redraw());
    this.scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.ruler.addEventListener("wheel", (event) => this.wheel(event, true), { passive: false });
    this.overview.addEventListener("wheel", (event) => this.wheel(event, true), { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => (event.shiftKey ? this.dragSpan(event) : this.drag(event)));
    this.ruler.addEventListener("pointerdown", (event) => this.dragSpan(event));
    this.overview.addEventListener("pointerdown", (event) => this.dragOverview(event));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => (byId("hover").hidden = true));
    this.canvas.addEventListener("dblclick", () => this.focus());
    new IntersectionObserver((seen) => (this.inView = seen[seen.length - 1].isIntersecting)).observe(byId("stage"));
    document.addEventListener("keydown", (event) => this.key(event));
  }

  wheel(event, always) {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey || always) {
      const x = event.clientX - this.canvas.getBoundingClientRect().left;
      this.zoom(Math.exp(-event.deltaY / 250), this.at(Math.max(x, LABEL_WIDTH)));
    } else if (sideways) this.show(...[this.from, this.to].map((at) => at + (sideways / 800) * (this.to - this.from)));
    else return;
    event.preventDefault();
  }

  /** Follows the pointer until it is let go of. */
  follow(event, move, end) {
    const target = event.currentTarget;
    if (event.button !== 0) return;
    target.setPointerCapture(event.pointerId);
    const moved = (event) => move(event);
    target.addEventListener("pointermove", moved);
    target.addEventListener("pointerup", (event) => {
      target.removeEventListener("pointermove", moved);
      end(event);
    }, { once: true });
  }

  drag(event) {
    const [x, y, from, to, scroll] = [event.clientX, event.clientY, this.from, this.to, this.scroller.scrollTop];
    let far = false;
    this.follow(event, (event) => {
      far = far || Math.hypot(event.clientX - x, event.clientY - y) > 4;
      if (!far) return;
      this.canvas.style.cursor = "grabbing";
      const by = ((event.clientX - x) / (this.width - LABEL_WIDTH)) * (to - from);
      this.show(from - by, to - by);
      this.scroller.scrollTop = scroll - (event.clientY - y);
    }, (event) => {
      this.canvas.style.cursor = "";
      if (!far) this.select(this.hit(event).place || null);
    });
  }

  dragSpan(event) {
    const left = this.canvas.getBoundingClientRect().left;
    const begin = this.at(event.clientX - left);
    this.follow(event, (event) => {
      const end = this.at(event.clientX - left);
      this.chosen = [Math.min(begin, end), Math.max(begin, end)];
      this.redraw();
    }, (event) => this.choose(begin, this.at(event.clientX - left)));
  }

  dragOverview(event) {
    const left = this.overview.getBoundingClientRect().left + LABEL_WIDTH;
    const time = (event) => this.timeline.from + ((event.clientX - left) / (this.width - LABEL_WIDTH)) * (this.timeline.to - this.timeline.from);
    const begin = time(event);
    const half = (this.to - this.from) / 2;
    const inside = begin > this.from && begin < this.to;
    const centre = (event) => this.show(time(event) - half, time(event) + half);
    this.follow(event, (event) => (inside ? centre(event) : this.show(Math.min(begin, time(event)), Math.max(begin, time(event)))),
      (event) => (Math.abs(time(event) - begin) < (this.timeline.to - this.timeline.from) / 500 ? centre(event) : null));
  }

  hover(event) {
    const { place, item, x } = this.hit(event);
    const tip = byId("hover");
    const at = this.at(x);
    const value = item && item.kind === "line" && x >= LABEL_WIDTH ? valueAt(item.line, at) : null;
    const text = place ? barText(this.timeline, place) : value;
    tip.hidden = !text || event.buttons > 0;
    if (tip.hidden) return;
    tip.textContent = text;
    const box = byId("stage").getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX - box.left + 14, box.width - 260)}px`;
    tip.style.top = `${event.clientY - box.top + 16}px`;
  }

  key(event) {
    const target = event.target;
    const writes = target.matches("input, select, textarea");
    if (writes || event.ctrlKey || event.metaKey || event.altKey) return;
    // The other keys change what only the timeline shows.
    if (!this.inView && event.key !== "/") return;
    const here = this.scroller.contains(target);
    const acts = {
      w: () => this.zoom(ZOOM), s: () => this.zoom(1 / ZOOM), a: () => this.pan(-PAN), d: () => this.pan(PAN), 0: () => this.all(),
      f: () => this.focus(), "/": () => this.find(), Escape: () => this.select(null),
      "[": () => this.along(causeOf), "]": () => this.along((timeline, place) => effectsOf(timeline, place)[0]),
    };
    const moves = { ArrowLeft: () => this.next(-1), ArrowRight: () => this.next(1), ArrowUp: () => this.other(-1), ArrowDown: () => this.other(1) };
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key] || (here ? moves[event.key] : null);
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Follows an arrow. */
  along(to) {
    const place = this.selected && to(this.timeline, this.selected);
    if (place) this.select(place);
  }

  /** Selects the bar after the selected one in its track, or before it. */
  next(direction) {
    if (!this.selected) return this.other(direction);
    const { track, bar } = this.selected;
    if (bar + direction >= 0 && bar + direction < track.bars) this.select({ track, bar: bar + direction });
  }

  /** Selects a bar of the next track, or the one before, at about the same time. */
  other(direction) {
    const tracks = this.layout.items.filter((item) => item.kind === "track" && item.track.bars > 0).map((item) => item.track);
    const own = this.selected ? tracks.indexOf(this.selected.track) : direction > 0 ? -1 : tracks.length;
    const track = tracks[own + direction];
    if (!track) return;
    const at = this.selected ? this.selected.track.start[this.selected.bar] : this.from;
    this.select({ track, bar: Math.min(begun(track, at), track.bars - 1) });
  }
}

/** What a line's value is at a time. */
function valueAt(line, at) {
  let point = -1;
  while (point + 1 < line.points && line.at[point + 1] <= at) point += 1;
  return point < 0 ? null : `${line.name}: ${valueText(line.value[point], line.unit)}${ownUnit(line.unit)}`;
}
