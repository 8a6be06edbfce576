//! The lines on the screen, for whatever size it has: the most important ones stay longest.

use ratatui::Frame;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};

use super::app::App;
use super::table;
use super::view::{PANES, View};
use crate::trace::{columns_of, front};

/// From so many lines on all three panes share the room; on fewer the others have what the one with the keys leaves.
const ALL_PANES: usize = 16;
/// The head of a pane and one row.
const LEAST_OF_PANE: usize = 2;
/// From so many on there are the verdict and the foot.
const WITH_FOOT: usize = 6;

/// What the keys do.
const HELP: &[&str] = &[
    "q Esc Ctrl-C  quit",
    "Tab           next pane: processes, kernels, call sites",
    "arrows j k    move; PgUp PgDn Home End too",
    "s > <         sort by the next column, by the one before",
    "r             the other way round",
    "/             show only what holds a text; Esc shows all",
    "p space       pause, go on",
    "Ctrl-Z        back to the shell; fg comes back",
    "+ -           look less often, more often",
    "",
    "GPU   time in which the GPU worked, of the time that is known (--gpu-time)",
    "SYNC  time in waits, those inside copies and frees too, of one thread's: 2 threads make 200 %",
    "CP    copies, GB in a second; DEV MEM what it has from the driver (finished: the most it had)",
    "COST  time that tracing takes from the process, the same",
    "DROPPED  events that found no room so far; a kernel's time is estimated where only some runs are timed",
    "os_wait  below other lines: threads that have nothing to do wait as well",
    "~     an estimate: some launches are drawn, and stand for as many as they were drawn from",
    "-     not known",
];

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    Head,
    Focused,
    Selected,
    Foot,
}

/// A line of the screen.
pub(crate) type Drawn = (String, Look);

/// The lines of a screen of this size.
pub(crate) fn lines(app: &mut App, view: &View, width: usize, height: usize) -> Vec<Drawn> {
    let mut lines = vec![(view.title.clone(), Look::Head)];
    if height >= WITH_FOOT {
        lines.push((view.verdict.clone(), Look::Plain));
    }
    let foot = usize::from(height >= WITH_FOOT);
    let room = height.saturating_sub(lines.len() + foot);
    if app.help {
        lines.extend(help_lines(app, room));
    } else {
        let given = if height >= ALL_PANES { shared_out(app, view, room) } else { left_over(app, view, room) };
        let focus = app.focus;
        for (pane, room) in given.into_iter().enumerate().filter(|(pane, room)| *room > 0 || *pane == focus) {
            lines.extend(pane_lines(app, view, pane, width, room));
        }
    }
    lines.truncate(height - foot.min(height));
    if foot == 1 {
        lines.resize(height - 1, (String::new(), Look::Plain));
        lines.push((footer(app), Look::Foot));
    }
    lines
}

/// The lines of the help that there is room for; the last one says where there are more.
fn help_lines(app: &mut App, room: usize) -> Vec<Drawn> {
    let cut = HELP.len() > room;
    let shown = if cut { room.saturating_sub(1) } else { room };
    app.help_last = HELP.len().saturating_sub(shown);
    app.help_at = app.help_at.min(app.help_last);
    let lines = HELP.iter().skip(app.help_at).take(shown).map(|line| (*line).to_owned());
    let (above, below) = (app.help_at, HELP.len().saturating_sub(app.help_at + shown));
    let more =
        (cut && room > 0).then(|| format!("arrows: {above} lines above, {below} below; any other key ends this"));
    lines.map(|line| (line, Look::Plain)).chain(more.map(|more| (more, Look::Focused))).collect()
}

/// Lines that each pane has use for, its head among them.
fn wanted(app: &mut App, view: &View) -> [usize; 3] {
    [0, 1, 2].map(|pane| app.rows(view, pane).len().max(1) + 1)
}

/// Gives these panes a line each in turn, until they have what they want; returns how many are left.
fn deal(panes: &[usize], wants: [usize; 3], given: &mut [usize; 3], mut left: usize) -> usize {
    while left > 0 && panes.iter().any(|pane| given[*pane] < wants[*pane]) {
        for pane in panes {
            if left > 0 && given[*pane] < wants[*pane] {
                given[*pane] += 1;
                left -= 1;
            }
        }
    }
    left
}

/// How many lines each pane gets on a small screen: the one that has the keys comes first.
fn left_over(app: &mut App, view: &View, room: usize) -> [usize; 3] {
    let (wants, mut given) = (wanted(app, view), [0; 3]);
    let left = deal(&[app.focus], wants, &mut given, room);
    let others: Vec<usize> = (0..3).filter(|pane| *pane != app.focus).take(left / LEAST_OF_PANE).collect();
    deal(&others, wants, &mut given, left);
    given
}

/// How many lines each pane gets, its head among them: what one does not need the others have.
fn shared_out(app: &mut App, view: &View, room: usize) -> [usize; 3] {
    let mut given = [0; 3];
    let mut left = deal(&[0, 1, 2], wanted(app, view), &mut given, room);
    // An empty line between two panes looks better, where there is room for both.
    for given in given.iter_mut().take(2) {
        let blank = 1.min(left);
        *given += blank;
        left -= blank;
    }
    given
}

fn pane_lines(app: &mut App, view: &View, pane: usize, width: usize, room: usize) -> Vec<Drawn> {
    let columns = PANES[pane];
    // One column at the left is for the mark of the pane that has the keys.
    let fitted = table::fit(columns, width.saturating_sub(1));
    let rows = app.rows(view, pane);
    let has_keys = app.focus == pane;
    let own = &mut app.panes[pane];
    own.selected = own.selected.min(rows.len().saturating_sub(1));
    let shown = room.saturating_sub(1);
    own.top = own.top.min(own.selected).max((own.selected + 1).saturating_sub(shown));
    let (mark, look) = if has_keys { ('>', Look::Focused) } else { (' ', Look::Head) };
    let span = if pane == 0 || view.span.is_empty() { String::new() } else { format!(" ({})", view.span) };
    let mut lines = vec![(format!("{mark}{}{span}", table::head(columns, &fitted)), look)];
    for (n, row) in rows.iter().enumerate().skip(own.top).take(shown) {
        let look = if has_keys && n == own.selected { Look::Selected } else { Look::Plain };
        lines.push((format!(" {}", table::line(columns, &fitted, row)), look));
    }
    if rows.is_empty() {
        let why = if own.filter.is_empty() { view.none[pane] } else { "nothing holds that text" };
        lines.push((format!(" {why}"), Look::Plain));
    }
    lines.resize(room.max(1), (String::new(), Look::Plain));
    lines
}

fn footer(app: &App) -> String {
    let pane = &app.panes[app.focus];
    if app.typing {
        return format!("/{}_  Enter keeps it, Esc shows all", pane.filter);
    }
    let mut parts = Vec::new();
    if !app.message.is_empty() {
        parts.push(app.message.clone());
    }
    if app.paused {
        parts.push("PAUSED".to_owned());
    }
    let order = if pane.reverse { "least first" } else { "most first" };
    parts.push(format!("by {}, {order}", PANES[app.focus].get(pane.sort).map_or("", |column| column.name)));
    if !pane.filter.is_empty() {
        parts.push(format!("only {:?}", pane.filter));
    }
    if !app.over {
        parts.push(format!("every {} s", app.interval.as_secs_f64()));
    }
    parts.push("h help, q quit".to_owned());
    parts.join("; ")
}

/// Draws the lines.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &mut App, view: &View) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let lines = lines(app, view, width, height).into_iter().map(|(text, look)| {
        let cut = front(&text, width).to_owned();
        let (style, fills) = match look {
            Look::Plain => (Style::new(), false),
            Look::Head => (Style::new().add_modifier(Modifier::BOLD), false),
            Look::Focused => (Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED), false),
            Look::Selected | Look::Foot => (Style::new().add_modifier(Modifier::REVERSED), true),
        };
        let blanks = if fills { " ".repeat(width.saturating_sub(columns_of(&cut))) } else { String::new() };
        Line::styled(format!("{cut}{blanks}"), style)
    });
    let text: Text<'_> = lines.collect::<Vec<_>>().into();
    frame.render_widget(text, area);
}

/// All of it as plain text, for who is no terminal.
pub(crate) fn plain(app: &mut App, view: &View, width: usize) -> String {
    let mut text = String::new();
    let mut add = |line: &str| {
        text.push_str(front(line, width).trim_end());
        text.push('\n');
    };
    add(&view.title);
    add(&view.verdict);
    for pane in 0..PANES.len() {
        add("");
        app.focus = PANES.len();
        let rows = app.rows(view, pane).len();
        pane_lines(app, view, pane, width, rows.max(1) + 1).iter().for_each(|(line, _)| add(line));
    }
    text
}
