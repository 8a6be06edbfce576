/* Draws the timeline onto its canvases: the whole of it, the ruler, the tracks, the arrows. */

/** A canvas as large as it is shown, in the screen's own pixels; gives its context, cleared. */
function prepared(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    [canvas.width, canvas.height] = [w, h];
    [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** The colors of the theme, read once for each. */
function palette() {
  const names = ["paper", "ink", "quiet", "line", "accent", "label", "mark", "s0"];
  const colors = Object.fromEntries(names.map((name) => [name, cssColor(`--${name}`)]));
  // Lines over the fill of runs.
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const context = tile.getContext("2d");
  context.strokeStyle = "rgb(0 0 0 / .3)";
  for (const at of [-6, 0, 6]) {
    context.moveTo(at, 6);
    context.lineTo(at + 6, 0);
  }
  context.stroke();
  colors.hatch = context.createPattern(tile, "repeat");
  return colors;
}

/** Times at which the ruler has a mark: 1, 2 or 5 of a power of ten apart. */
function marks(from, to, most) {
  const least = (to - from) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(least));
  const apart = [1, 2, 5, 10].map((times) => times * power).find((apart) => apart >= least);
  const all = [];
  for (let at = Math.ceil(from / apart) * apart; at <= to; at += apart) all.push(at);
  return [all, apart];
}

function drawRuler(view, colors) {
  const context = prepared(view.ruler, view.width, 24);
  context.fillStyle = colors.label;
  context.fillRect(0, 0, LABEL_WIDTH, 24);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colors.quiet;
  context.strokeStyle = colors.line;
  const [all, apart] = marks(view.from, view.to, (view.width - LABEL_WIDTH) / 110);
  const [unit, divisor] = scaleNs(Math.max(Math.abs(view.from), Math.abs(view.to)));
  const places = Math.max(0, Math.ceil(-Math.log10(apart / divisor)));
  context.fillText(`since the begin (${unit})`, 8, 16);
  for (const at of all) {
    const x = view.x(at);
    context.fillRect(x, 15, 1, 9);
    context.fillText((at / divisor).toFixed(places), x + 4, 13);
  }
  if (view.chosen) {
    context.globalAlpha = 0.3;
    context.fillStyle = colors.accent;
    const [x0, x1] = [Math.max(view.x(view.chosen[0]), LABEL_WIDTH), view.x(view.chosen[1])];
    context.fillRect(x0, 0, Math.max(x1 - x0, 1), 24);
    context.globalAlpha = 1;
  }
}

/** How much of each pixel's time the bars of some tracks take. */
function density(timeline, tracks, pixels) {
  const span = timeline.to - timeline.from;
  const sums = new Float64Array(pixels);
  for (const track of tracks) {
    for (let bar = 0; bar < track.bars; bar++) {
      if (track.row[bar] > 0) continue;
      const x = ((track.start[bar] - timeline.from) / span) * pixels;
      const to = ((track.end[bar] - timeline.from) / span) * pixels;
      const share = track.count && track.count[bar] > 1 ? track.busy[bar] / Math.max(track.end[bar] - track.start[bar], 1) : 1;
      for (let pixel = Math.floor(x); pixel <= to && pixel < pixels; pixel++) {
        sums[pixel] += Math.max(Math.min(to, pixel + 1) - Math.max(x, pixel), 0) * share;
      }
    }
  }
  return sums;
}

function drawOverview(view, colors) {
  const context = prepared(view.overview, view.width, 44);
  const pixels = Math.max(Math.round(view.width - LABEL_WIDTH), 1);
  if (!view.densities || view.densities[0].length !== pixels) {
    const of = (what) => density(view.timeline, view.timeline.tracks.filter((track) => track.what === what), pixels);
    view.densities = [of("thread"), of("stream")];
  }
  context.fillStyle = colors.label;
  context.fillRect(0, 0, LABEL_WIDTH, 44);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colors.quiet;
  context.fillText("host calls, whole trace", 8, 16);
  context.fillText("GPU work", 8, 37);
  view.densities.forEach((sums, row) => {
    const most = sums.reduce((most, sum) => Math.max(most, sum), 1e-9);
    context.fillStyle = row === 0 ? colors.quiet : colors.s0;
    for (let pixel = 0; pixel < pixels; pixel++) {
      const height = (sums[pixel] / Math.max(most, 1)) * 18;
      if (height > 0) context.fillRect(LABEL_WIDTH + pixel, 20 + row * 22 - height, 1, height);
    }
  });
  const all = view.timeline.to - view.timeline.from;
  const x = (at) => LABEL_WIDTH + ((at - view.timeline.from) / all) * pixels;
  context.fillStyle = theme.dark ? "rgb(0 0 0 / .55)" : "rgb(90 100 120 / .25)";
  context.fillRect(LABEL_WIDTH, 0, x(view.from) - LABEL_WIDTH, 44);
  context.fillRect(x(view.to), 0, view.width - x(view.to), 44);
  context.strokeStyle = colors.accent;
  context.strokeRect(x(view.from) + 0.5, 0.5, Math.max(x(view.to) - x(view.from) - 1, 2), 43);
}

function drawTracks(view, colors) {
  const height = view.viewHeight;
  const context = prepared(view.canvas, view.width, height);
  const top = view.scroll;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.save();
  context.beginPath();
  context.rect(LABEL_WIDTH, 0, view.width - LABEL_WIDTH, height);
  context.clip();
  context.fillStyle = colors.line;
  context.globalAlpha = 0.6;
  for (const at of marks(view.from, view.to, (view.width - LABEL_WIDTH) / 110)[0]) context.fillRect(view.x(at), 0, 1, height);
  context.globalAlpha = 1;
  for (const item of view.layout.items) {
    const y = item.top - top;
    if (y > height || y + item.height < 0) continue;
    context.fillStyle = colors.line;
    context.fillRect(LABEL_WIDTH, y + item.height - 1, view.width, 1);
    if (item.kind === "head") {
      context.fillStyle = colors.label;
      context.fillRect(LABEL_WIDTH, y, view.width, item.height - 1);
    } else if (item.kind === "track") drawBars(view, context, colors, item.track, y + 3);
    else drawLine(view, context, colors, item.line, y);
  }
  if (view.chosen) {
    context.fillStyle = colors.accent;
    context.globalAlpha = 0.15;
    context.fillRect(view.x(view.chosen[0]), 0, Math.max(view.x(view.chosen[1]) - view.x(view.chosen[0]), 1), height);
    context.globalAlpha = 1;
  }
  drawArrows(view, context, colors);
  context.restore();
}

/** The bars of a track. Of those that share a pixel and a row the first is drawn, and of matches the first of these. */
function drawBars(view, context, colors, track, top) {
  const { from, to, timeline, selected, found } = view;
  const [taken, lit] = [-1, -1].map((none) => new Int32Array(track.rows).fill(none));
  const perNs = (view.width - LABEL_WIDTH) / (to - from);
  for (let bar = firstBar(track, from); bar < track.bars && track.start[bar] < to; bar++) {
    if (track.end[bar] < from) continue;
    const row = track.row[bar];
    const x = LABEL_WIDTH + (track.start[bar] - from) * perNs;
    const end = LABEL_WIDTH + (track.end[bar] - from) * perNs;
    const chosen = selected && selected.track === track && selected.bar === bar;
    const kind = track.kind[bar];
    const match = found && found[kind];
    if (end < (match ? lit : taken)[row] && !chosen) continue;
    const left = Math.max(x, LABEL_WIDTH - 2);
    const width = Math.max(Math.min(end, view.width + 2) - left, 1);
    taken[row] = Math.ceil(left + width);
    if (match) lit[row] = taken[row];
    const y = top + row * BAR_HEIGHT;
    const look = timeline.looks[kind];
    context.globalAlpha = found && !match ? 0.25 : 1;
    if (look.moment) drawMoment(context, colors, left, y);
    else {
      context.fillStyle = fillOf(look.hue);
      context.fillRect(left, y, width > 3 ? width - 0.5 : width, BAR_HEIGHT - 2);
      if (track.count && track.count[bar] > 1) {
        context.fillStyle = colors.hatch;
        context.fillRect(left, y, width, BAR_HEIGHT - 2);
      }
    }
    if (width > 22 && !look.moment) drawName(context, barName(track, bar, look), left, y, width);
    if (chosen || (match && width > 2)) {
      context.strokeStyle = chosen ? colors.ink : colors.accent;
      context.lineWidth = chosen ? 2 : 1;
      context.strokeRect(left + 0.5, y + 0.5, Math.max(width - 1, 2), BAR_HEIGHT - 3);
      context.lineWidth = 1;
    }
  }
  context.globalAlpha = 1;
}

function barName(track, bar, look) {
  return track.count && track.count[bar] > 1 ? `${thousands(track.count[bar])} × ${look.short}` : look.short;
}

function drawMoment(context, colors, x, y) {
  context.fillStyle = colors.ink;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + 4, y + 7);
  context.lineTo(x, y + 14);
  context.lineTo(x - 4, y + 7);
  context.fill();
}

function drawName(context, name, x, y, width) {
  const most = Math.floor((width - 6) / 6);
  if (most < 3) return;
  context.fillStyle = BAR_INK;
  const text = name.length > most ? `${name.slice(0, most - 1)}…` : name;
  context.fillText(text, x + 3, y + (BAR_HEIGHT - 2) / 2 + 0.5, width - 6);
}

/** A value over time, as steps. */
function drawLine(view, context, colors, line, top) {
  const [low, height] = [top + LINE_HEIGHT - 4, LINE_HEIGHT - 10];
  const y = (value) => low - (Math.max(value, 0) / (line.most || 1)) * height;
  context.beginPath();
  let last = low;
  let began = false;
  for (let point = 0; point < line.points; point++) {
    const until = point + 1 < line.points ? line.at[point + 1] : line.until;
    if (until < view.from) continue;
    if (line.at[point] > view.to) break;
    const x = Math.max(view.x(line.at[point]), LABEL_WIDTH - 1);
    if (!began) context.moveTo(x, low);
    began = true;
    last = y(line.value[point]);
    context.lineTo(x, last);
    context.lineTo(Math.min(view.x(until), view.width + 1), last);
  }
  if (!began) return;
  context.lineTo(Math.min(view.x(Math.min(view.to, line.until)), view.width + 1), low);
  context.globalAlpha = 0.3;
  context.fillStyle = colors.s0;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = colors.s0;
  context.stroke();
}

/** Arrows between the selected bar and what caused it, or what it caused. */
function drawArrows(view, context, colors) {
  context.strokeStyle = colors.ink;
  context.fillStyle = colors.ink;
  context.lineWidth = 1.5;
  for (const [from, to] of view.arrows()) {
    const place = ({ track, bar }) => {
      const item = view.layout.of(track);
      const row = item.kind === "head" ? 0 : track.row[bar];
      return item.top - view.scroll + 3 + row * BAR_HEIGHT + BAR_HEIGHT / 2;
    };
    const [x0, y0, x1, y1] = [view.x(from.track.end[from.bar]), place(from), view.x(to.track.start[to.bar]), place(to)];
    const bend = Math.max(Math.abs(x1 - x0) / 2, 24);
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 7, y1 - 4);
    context.lineTo(x1 - 7, y1 + 4);
    context.fill();
  }
  context.lineWidth = 1;
}
