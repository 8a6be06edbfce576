//! The screen at every size, and what keys make of it.

use std::time::Duration;

use gputrace_collectors::live::{Device, Frame, Gpu, Hot, HotKernel, HotSite, Kind, Process, Snapshot, Sums};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, Asked};
use super::rates::History;
use super::view::{self, PANES, View};
use super::{Options, screen, still_text};
use crate::trace::SiteFinder;

const SIZES: [(u16, u16); 12] =
    [(200, 50), (80, 24), (80, 10), (40, 10), (10, 3), (1, 1), (120, 16), (80, 6), (80, 2), (3, 40), (0, 0), (300, 1)];

fn process(n: i64, seconds: i64) -> Process {
    let kind = |count: i64, ns: i64| Kind {
        seen: count.unsigned_abs(),
        events: count.unsigned_abs(),
        bytes: count * 1_000_000,
        total_ns: ns,
        ..Kind::default()
    };
    let launches = seconds * 1000 * (n + 1);
    let kinds = [
        ("launch", kind(launches, launches * 2000)),
        ("sync", kind(seconds, seconds * 400_000_000)),
        ("transfer", kind(seconds * 500, 0)),
        ("alloc", kind(seconds, 0)),
    ];
    let kinds = kinds.into_iter().map(|(name, kind)| (name.into(), kind)).collect();
    Process {
        process_id: n,
        pid: 4000 + n as i32,
        rank: (n < 2).then_some(n as i32),
        command: format!("python train_{n}.py --name 核心\u{1b}[31m"),
        recording: true,
        sums: Sums { kinds, device_memory_bytes: 3 << 30, cost_ns: Some(seconds as f64 * 1e7) },
        // Of the first one times of the GPU are known.
        gpu: (n == 0).then(|| Gpu {
            observed_ns: seconds * 1_000_000_000,
            devices: vec![Device { busy_ns: seconds * 430_000_000, ..Device::default() }],
        }),
        ..Process::default()
    }
}

fn snapshot(seconds: i64, processes: i64) -> Snapshot {
    let line = |n: i32| Frame {
        python: true,
        function: "step".to_owned(),
        file: Some("/u/train.py".to_owned()),
        line: Some(n),
        ..Frame::default()
    };
    Snapshot {
        at_ns: seconds * 1_000_000_000,
        command: vec!["torchrun".to_owned(), "train script.py".to_owned()],
        ended: 2,
        processes: (0..processes).map(|n| process(n, seconds)).collect(),
        hot: Some(Hot {
            span_ns: 10_000_000_000,
            kernels: vec![
                HotKernel {
                    name: Some("_ZN5gemmaEv".to_owned()),
                    launches: 100,
                    timed: 10,
                    gpu_ns: 20_000_000,
                    launch_ns: 0,
                },
                HotKernel { name: None, launches: 3, ..HotKernel::default() },
            ],
            sites: (1..20)
                .map(|n| HotSite {
                    kind: "sync".into(),
                    frames: vec![line(n)],
                    calls: 10,
                    drawn: 0,
                    total_ns: 1_000_000_000 / i64::from(n),
                    bytes: 0,
                })
                .chain([HotSite { kind: "transfer".into(), ..HotSite::default() }])
                .chain([3, 4].map(|calls| HotSite {
                    kind: "api".into(),
                    frames: vec![line(77)],
                    calls,
                    ..HotSite::default()
                }))
                .chain([HotSite {
                    kind: "launch".into(),
                    frames: vec![line(55)],
                    calls: 7000,
                    drawn: 7,
                    total_ns: 10_000_000,
                    ..HotSite::default()
                }])
                .chain([HotSite {
                    kind: "os_wait".into(),
                    frames: vec![line(99)],
                    total_ns: 1 << 40,
                    ..HotSite::default()
                }])
                .collect(),
            cut: false,
        }),
        ..Snapshot::default()
    }
}

fn view(processes: i64) -> View {
    let mut history = History::default();
    history.add(snapshot(10, processes));
    history.add(snapshot(12, processes));
    view::of_session(&history, &mut SiteFinder::new(0))
}

fn app() -> App {
    App::new(Duration::from_secs(1), "launches")
}

fn press(app: &mut App, code: KeyCode) -> Asked {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn typed(app: &mut App, text: &str) {
    text.chars().for_each(|letter| assert_eq!(press(app, KeyCode::Char(letter)), Asked::Nothing));
}

/// The lines of a screen.
fn drawn(app: &mut App, view: &View, (width, height): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal is needed");
    terminal.draw(|frame| screen::draw(frame, app, view)).expect("nothing fails");
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

#[test]
fn every_size_shows_what_it_has_room_for_and_none_panics() {
    for processes in [0, 1, 3, 400] {
        let view = view(processes);
        for size in SIZES {
            let mut app = app();
            for pane in 0..PANES.len() {
                let lines = drawn(&mut app, &view, size);
                assert_eq!(lines.len(), usize::from(size.1), "{size:?} pane {pane}");
                press(&mut app, KeyCode::End);
                drawn(&mut app, &view, size);
                press(&mut app, KeyCode::Char('?'));
                drawn(&mut app, &view, size);
                press(&mut app, KeyCode::Char('x'));
                press(&mut app, KeyCode::Tab);
            }
        }
    }
}

#[test]
fn a_large_screen_has_all_columns_of_all_panes_with_their_values() {
    let text = drawn(&mut app(), &view(3), (200, 50)).join("\n");
    for head in PANES.into_iter().flatten().map(|column| column.head) {
        assert!(text.contains(head), "{head}: {text}");
    }
    let line = |of: &str| text.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{of}: {text}"));
    assert!(
        line("torchrun").contains("'train script.py'") && line("torchrun").contains("3 processes, 2 ended"),
        "{text}"
    );
    assert!(line("GPU busy 43 %").contains("it idles for the host; the host waits 40 %"), "{text}");
    let first: Vec<&str> = line("train_0.py").split_whitespace().collect();
    assert_eq!(first[..7], ["4000", "0", "1000", "43", "%", "40", "%"]);
    assert_eq!(first[7..12], ["0.500", "3.00", "GiB", "1.0", "-"], "copies, memory, allocations, no malloc");
    let third: Vec<&str> = line("train_2.py").split_whitespace().collect();
    assert_eq!(third[..4], ["4002", "-", "3000", "-"], "no rank, and no times of its GPU");
    // Ten of a hundred runs took 20 ms: all of them 200 ms in 10 s.
    let kernel: Vec<&str> = line("gemma").split_whitespace().collect();
    assert_eq!(kernel[..6], ["2.0", "%", "10.0", "2.00", "ms", "gemma"]);
    assert!(line("a kernel without a name").trim_start().starts_with("- "), "{text}");
    assert!(line("train.py:1 step").contains("10 %") && text.contains("(last 10 s)"), "{text}");
    assert!(line("not known)").contains("transfer"), "{text}");
    let drawn: Vec<&str> = line("train.py:55 step").split_whitespace().collect();
    assert_eq!(drawn[..4], ["~0.1", "%", "~700", "launch"], "seven that were drawn stand for 7000");
    // Two stacks with one line are one row, and what waits for the system stands below.
    assert!(line("train.py:77").contains("0.7        api") && text.matches("train.py:77").count() == 1, "{text}");
    let place = |of: &str| text.lines().position(|line| line.contains(of)).unwrap_or(usize::MAX);
    assert!(place("train.py:99 step") > place("train.py:77 step") && place("train.py:99 step") < usize::MAX, "{text}");
    assert!(!text.contains('\u{1b}') && text.contains("核"), "{text}");
}

#[test]
fn a_small_screen_keeps_the_pane_with_the_keys_and_the_most_important_columns() {
    let view = view(3);
    let mut app = app();
    let text = drawn(&mut app, &view, (80, 10)).join("\n");
    assert!(text.contains("LAUNCH/S") && text.contains("COMMAND") && !text.contains("MALLOC/S"), "{text}");
    assert!(!text.contains("CALL SITE") && text.contains("h help, q quit"), "{text}");
    press(&mut app, KeyCode::Tab);
    press(&mut app, KeyCode::Tab);
    let text = drawn(&mut app, &view, (80, 10)).join("\n");
    assert!(text.contains(">") && text.contains("CALL SITE") && !text.contains("COMMAND"), "{text}");
    let text = drawn(&mut app, &view, (40, 10)).join("\n");
    assert!(text.contains("train.py:1"), "{text}");
    assert_eq!(drawn(&mut app, &view, (10, 3))[0], "torchrun '");
}

#[test]
fn a_small_screen_has_of_the_other_panes_what_the_one_with_the_keys_leaves() {
    let mut app = app();
    let heads = |app: &mut App, processes: i64, height: u16| {
        let text = drawn(app, &view(processes), (80, height)).join("\n");
        ["COMMAND", "KERNEL", "CALL SITE"].map(|head| text.contains(head))
    };
    // Seven lines below the two at the top: one process takes two of them.
    let text = drawn(&mut app, &view(1), (80, 10));
    assert!(text[2].starts_with(">") && text[4].contains("KERNEL") && text[5].contains("gemma"), "{text:?}");
    assert!(text[7].contains("CALL SITE") && !text[8].is_empty(), "{text:?}");
    assert_eq!(heads(&mut app, 4, 10), [true, true, false], "a head and a row are the least");
    assert_eq!(heads(&mut app, 5, 10), [true, false, false]);
    assert_eq!(heads(&mut app, 1, 6), [true, false, false]);
    press(&mut app, KeyCode::Tab);
    assert_eq!(heads(&mut app, 400, 10), [true, true, true]);
}

#[test]
fn eighty_columns_have_room_for_all_that_is_asked_of_a_process() {
    let text = drawn(&mut app(), &view(3), (80, 24)).join("\n");
    let heads = ["PID", "LAUNCH/S", "GPU", "SYNC", "CP GB/S", "DEV MEM", "ALLOC/S", "DROPPED", "COST", "COMMAND"];
    heads.iter().for_each(|head| assert!(text.contains(head), "{head}: {text}"));
    assert!(text.contains("3.00 GiB") && text.contains("python t"), "{text}");
}

#[test]
fn help_that_has_no_room_says_that_there_is_more_and_scrolls_to_its_last_line() {
    let (view, mut app) = (view(1), app());
    press(&mut app, KeyCode::Char('h'));
    let mut seen = String::new();
    let first = drawn(&mut app, &view, (80, 10)).join("\n");
    assert!(first.contains("q Esc Ctrl-C  quit") && first.contains("0 lines above"), "{first}");
    for _ in 0..30 {
        seen.push_str(&drawn(&mut app, &view, (80, 10)).join("\n"));
        assert_eq!(press(&mut app, KeyCode::Down), Asked::Nothing);
    }
    let last = drawn(&mut app, &view, (80, 10)).join("\n");
    assert!(last.contains("not known") && last.contains(" 0 below"), "{last}");
    assert!(["GPU   time", "SYNC  time", "COST  time", "Ctrl-Z"].iter().all(|line| seen.contains(line)), "{seen}");
    press(&mut app, KeyCode::Home);
    assert_eq!(drawn(&mut app, &view, (80, 10)).join("\n"), first);
    press(&mut app, KeyCode::Char('x'));
    assert!(!app.help && drawn(&mut app, &view, (80, 10)).join("\n").contains("LAUNCH/S"));
    // Where all of it has room, nothing is said of more.
    press(&mut app, KeyCode::Char('h'));
    let all = drawn(&mut app, &view, (120, 40)).join("\n");
    assert!(all.contains("not known") && !all.contains("lines above"), "{all}");
}

#[test]
fn keys_move_sort_filter_and_pause() {
    let view = view(30);
    let mut app = app();
    // Which process is selected: the screen says so by its looks alone.
    fn selected(app: &mut App, view: &View) -> String {
        let lines = screen::lines(app, view, 80, 24);
        let line = lines.into_iter().find(|(_, look)| *look == screen::Look::Selected).expect("one is selected").0;
        line.split_whitespace().next().unwrap_or_default().to_owned()
    }
    let shown = |app: &mut App| selected(app, &view);
    assert_eq!(shown(&mut app), "4029", "most launches first");
    typed(&mut app, "jj");
    press(&mut app, KeyCode::Up);
    assert_eq!(shown(&mut app), "4028");
    press(&mut app, KeyCode::PageDown);
    assert_eq!(shown(&mut app), "4018");
    typed(&mut app, "G");
    assert_eq!(shown(&mut app), "4000");
    typed(&mut app, "jgr");
    assert_eq!(shown(&mut app), "4000", "the other way round");
    typed(&mut app, "r<<");
    assert_eq!(shown(&mut app), "4029", "by pid");
    typed(&mut app, "<");
    assert_eq!(PANES[0][app.panes[0].sort].name, "command");
    typed(&mut app, "s>");
    typed(&mut app, "/Train_7");
    assert!(drawn(&mut app, &view, (80, 24)).join("\n").contains("/Train_7_"));
    press(&mut app, KeyCode::Enter);
    assert_eq!((shown(&mut app), app.counts[0]), ("4007".to_owned(), 1));
    assert_eq!(press(&mut app, KeyCode::Esc), Asked::Nothing, "all are shown again first");
    assert_eq!((shown(&mut app), app.counts[0]), ("4001".to_owned(), 30), "by rank");
    assert_eq!(press(&mut app, KeyCode::Char(' ')), Asked::Pause(true));
    assert!(drawn(&mut app, &view, (80, 24)).join("\n").contains("PAUSED"));
    assert_eq!(press(&mut app, KeyCode::Char('p')), Asked::Pause(false));
    assert_eq!(press(&mut app, KeyCode::Char('-')), Asked::Interval(Duration::from_millis(500)));
    assert_eq!(press(&mut app, KeyCode::Char('+')), Asked::Interval(Duration::from_secs(1)));
    for _ in 0..20 {
        press(&mut app, KeyCode::Char('+'));
    }
    assert_eq!(app.interval, Duration::from_secs(60));
}

#[test]
fn q_escape_and_control_c_end_it_but_not_while_a_filter_is_typed() {
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for typing in [false, true] {
        let mut app = app();
        if typing {
            typed(&mut app, "/");
        }
        let quits = |app: &mut App, code| press(&mut app.clone(), code) == Asked::Quit;
        assert_eq!(quits(&mut app, KeyCode::Char('q')), !typing);
        assert_eq!(quits(&mut app, KeyCode::Esc), !typing);
        assert_eq!(app.key(control_c), Asked::Quit);
    }
    let mut app = app();
    typed(&mut app, "h");
    assert!(app.help);
    assert_eq!(press(&mut app, KeyCode::Esc), Asked::Nothing);
    assert!(!app.help);
}

#[test]
fn a_frame_as_text_has_every_row_and_no_blanks_at_the_ends_of_lines() {
    let options = Options { interval: Duration::from_secs(1), sort: "pid".to_owned() };
    let text = still_text(&view(30), &options);
    assert!((0..30).all(|n| text.contains(&format!("train_{n}.py"))), "{text}");
    assert!(text.lines().all(|line| line.trim_end() == line && line.chars().count() <= 160), "{text}");
    assert!(text.contains("gemma") && text.contains("train.py:19 step"), "{text}");
    let first = still_text(&View::default(), &options);
    assert!(first.contains("COMMAND"), "{first}");
}
