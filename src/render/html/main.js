/* Puts the page together: what is read first at once, then what has to be unpacked. */

function trouble(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = false;
}

/** Hides the parts that stay empty. */
function without(...ids) {
  for (const id of ids) {
    byId(id).hidden = true;
    const link = document.querySelector(`nav a[href="#${id}"]`);
    if (link) link.hidden = true;
  }
}

async function start() {
  theme.start();
  const about = JSON.parse(byId("data-about").textContent);
  showFindings(about);
  if (typeof DecompressionStream === "undefined") {
    without("timeline", "charts", "tables");
    trouble("This browser cannot unpack the timeline, the charts and the tables of this page: it has no DecompressionStream "
      + "(Chrome and Edge 86, Firefox 113, Safari 16.4, and newer ones have it). What stands here is the summary; gputrace report prints the rest as text.");
    return;
  }
  let timeline = null;
  if (about.shown > 0) {
    timeline = unpackTimeline(await inflated("data-timeline"));
    window.timelineView = new TimelineView(timeline);
  } else without("timeline");
  document.body.dataset.painted = String(Math.round(performance.now()));
  const { sections, steps } = await unpackedJson("data-tables");
  showCharts(sections, steps, timeline);
  showRanks(sections);
  showTables(sections);
  showFlames(await unpackedJson("data-flames"));
  document.body.dataset.ready = "yes";
}

start().catch((error) => {
  trouble(`This page is damaged, or has met an error: ${error.message}`);
  throw error;
});
