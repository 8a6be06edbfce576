//! What the program calls its queues, command buffers, encoders and memory.

use super::{Run, each, on_each, sorted};
use crate::util::{Processor, Row};

fn name(run: &Run, row: &Row, column: &str) -> Option<String> {
    let names = run.trace.names();
    row.maybe_int(column).map(|id| names[&id].clone())
}

#[test]
fn labels_are_names() {
    each("metal_every.m", &["labels"], |run| {
        let of = |table: &str, columns: [&str; 2]| -> Vec<[Option<String>; 2]> {
            let table = run.trace.table(table);
            sorted(&table, "start_ns").iter().map(|row| columns.map(|column| name(run, row, column))).collect()
        };
        let said = |pairs: &[[&str; 2]]| -> Vec<[Option<String>; 2]> {
            let one = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            pairs.iter().map(|pair| pair.map(one)).collect()
        };
        // By the command buffer's own label, else its encoders', else its pipelines.
        let buffers =
            [["attention +1", "training"], ["own", "training"], ["layer_500us", "training"], ["layer_500us", ""]];
        assert_eq!(of("command_buffers", ["name_id", "queue_name_id"]), said(&buffers), "{}", run.who);
        let kernel = "layer_500us";
        let dispatches = ["attention", "mlp", "attention", "mlp", "", "", "", ""].map(|encoder| [encoder, kernel]);
        assert_eq!(of("dispatches", ["encoder_id", "name_id"]), said(&dispatches), "{}", run.who);
        let memory = run.trace.table("device_memory");
        let mut seen: Vec<_> =
            memory.rows().map(|r| (r.int("bytes"), r.text("action"), name(run, &r, "label_id"))).collect();
        seen.sort();
        let row = |bytes, action, label: &str| (bytes, action, (!label.is_empty()).then(|| label.to_owned()));
        let expected = [
            row(1000, "alloc", "weights"),
            row(1000, "free", "weights"),
            row(2000, "alloc", ""),
            row(2000, "free", ""),
            row(16384, "alloc", "image"),
            row(16384, "free", "image"),
        ];
        assert_eq!(seen, expected, "{}", run.who);
    });
}

#[test]
fn reports_and_timelines_say_labels() {
    each("metal_every.m", &["labels"], |run| {
        let trace = run.run.trace.display().to_string();
        let words = ["export", "--format", "chrome", "-o", "out.json"].map(str::to_owned);
        run.scratch.gputrace(&[&words[..], &[trace]].concat()).expect(0);
        let timeline = std::fs::read_to_string(run.scratch.path().join("out.json")).expect("the timeline");
        assert!(timeline.contains("GPU 0 (Simulated M1) training (0x"), "{}", run.who);
        for (report, label) in [("streams", "training"), ("device-memory", "weights"), ("device-memory", "image")] {
            let section = run.scratch.section(&run.run, report).to_string();
            assert!(section.contains(&format!("\"{label}\"")), "{}: {label} in {section}", run.who);
        }
    });
}

/// Each command buffer of so many threads has its own label.
#[track_caller]
fn assert_each_has_its_label(run: &Run, threads: usize, each: usize) {
    const CUT: usize = 88;
    let (names, rows) = (run.trace.names(), run.trace.table("command_buffers"));
    let name = |row: Row| row.maybe_int("name_id").map(|id| names[&id].clone()).unwrap_or_default();
    let mut seen: Vec<String> = rows.rows().map(name).collect();
    let label = |thread: usize, n: usize| {
        let text = format!("{:x<1$}", format!("{thread} {n} "), n % 120 + 8);
        text[..text.len().min(CUT)].to_owned()
    };
    let mut wanted: Vec<String> = (0..threads).flat_map(|thread| (0..each).map(move |n| label(thread, n))).collect();
    seen.sort();
    wanted.sort();
    assert!(
        seen == wanted,
        "{}: {} of {} have none",
        run.who,
        seen.iter().filter(|l| l.is_empty()).count(),
        seen.len()
    );
}

#[test]
fn labels_of_every_length_are_those_of_their_command_buffers_in_each_thread() {
    each("metal_labels.m", &["3", "700"], |run| assert_each_has_its_label(run, 3, 700));
}

/// In the smallest memory texts and events go where there is room, each for itself.
#[test]
fn labels_are_those_of_their_command_buffers_where_rings_are_full_too() {
    let options = ["--segment-memory", "1M", "--on-full", "block"];
    on_each(&[Processor::X86], "metal_labels.m", &["6", "5000"], &[], &options, |run| {
        assert_each_has_its_label(run, 6, 5000);
    });
}
