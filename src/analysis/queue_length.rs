//! queue-length: how far the host runs ahead of the GPU.

use super::passes::gpu::{FULL, Queue};
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, gpu, gpu_clock, unmatched};
use gputrace_collectors::schema::TableId;

/// The analysis.
pub(crate) struct QueueLength;

/// A stream: process, device, handle.
type Stream = (i64, i32, i64);

/// Points of a stream's series.
const POINTS: usize = 60;

impl Analysis for QueueLength {
    fn name(&self) -> &'static str {
        "queue-length"
    }

    fn title(&self) -> &'static str {
        "Queue length"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Operations of a stream whose call has begun and that have not begun themselves: +1 when the call begins, \
                -1 when the operation does. Mean over time, and Med, Max, StdDev over the lengths after each such event, as HTA \
                has them. At 1,024 and more the queue is full and the next launch call blocks: the GPU is the limit. A queue \
                that is nearly always empty starves: the host is the limit. Over time: the longest in each of 60 equal spans at most, \
                from the stream's first call on, of HTA's series, which has a point for each event.",
            unit: "operations; ns in JSON for time at a full queue.",
            limits: "Operations whose call is not in the trace are in no queue. A graph's kernels all join the queue when the graph's \
                call begins. Calls of one stream from several threads are taken in the order of their operations.",
            source: "HTA, queue length: its summary describes the lengths after each event, of five functions of the runtime and the \
                driver (launches, copies and sets), graphs not among them; limit of 1,024: HTA's and the driver's; its time series.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Launched, Need::GpuClock, Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("max", Count, "most operations queued in a stream")
                .sums(&[TableId::Kernels, TableId::Launches]),
            Metric::about("mean", Count, "mean operations queued in the busiest stream"),
            Metric::about("full_ns", Ns, "time with 1,024 operations queued or more")
                .sums(&[TableId::Kernels, TableId::Launches]),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.gpu.is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        const COLUMNS: [Column; 11] = [
            column("process", "Process", Unit::Text),
            column("device", "GPU", Unit::Count),
            column("stream", "Stream", Unit::Id),
            column("operations", "Operations", Unit::Count),
            column("mean", "Mean", Unit::Count),
            column("event_mean", "Mean of events", Unit::Count),
            column("med", "Med", Unit::Count),
            column("max", "Max", Unit::Count),
            column("stddev", "StdDev", Unit::Count),
            column("full_ns", "Full", Unit::Ns),
            column("full_percent", "Full", Unit::Percent),
        ];
        let mut section = Section::default();
        let Some(gpu) = gpu::times(facts, &mut section) else { return section };
        gpu_clock::note(&mut section, facts);
        unmatched::note_of_rest(&mut section, facts);
        super::uncalled::note(&mut section, facts);
        let mut queues: Vec<_> = gpu.queues.0.iter().collect();
        queues.sort_by_key(|(key, queue)| (std::cmp::Reverse(queue.operations), facts.place(key.0), **key));
        let full: i64 = queues.iter().map(|(_, queue)| queue.full_ns).sum();
        section.fact("max", "longest queue", Unit::Count, queues.iter().map(|(_, q)| q.lengths.max).max());
        section.fact("mean", "mean of the busiest stream", Unit::Count, queues.first().map(|(_, q)| q.mean()));
        section.fact("full_ns", "time at 1,024 and more", Unit::Ns, full);
        if full > 0 {
            section.note(format!(
                "At {FULL} operations the next launch call blocks: the GPU is the limit then, not the host."
            ));
        }
        let row = |((process_id, device, stream), queue): (&Stream, &Queue)| {
            vec![
                facts.label(*process_id).into(),
                i64::from(*device).into(),
                (*stream).into(),
                queue.operations.into(),
                queue.mean().into(),
                queue.lengths.mean().into(),
                queue.lengths.median().into(),
                queue.lengths.max.into(),
                queue.lengths.deviation().into(),
                queue.full_ns.into(),
                percent(queue.full_ns as f64, queue.weighted.1 as f64),
            ]
        };
        let series = over_time(facts, &queues);
        section.table(Table::new("by_stream", "By stream", &COLUMNS, queues.into_iter().map(row).collect()));
        section.table(series);
        section
    }
}

/// The longest queue in each span of time.
fn over_time(facts: &Facts<'_>, queues: &[(&Stream, &Queue)]) -> Table {
    const COLUMNS: [Column; 5] = [
        column("process", "Process", Unit::Text),
        column("device", "GPU", Unit::Count),
        column("stream", "Stream", Unit::Id),
        column("after_ns", "After", Unit::Ns),
        column("max", "Max", Unit::Count),
    ];
    let began = facts.trace.began_ns();
    let rows = queues.iter().flat_map(|((process_id, device, stream), queue)| {
        let first = queue.over_time.first_ns().unwrap_or(began);
        queue.over_time.points(POINTS).into_iter().map(move |(at, most)| {
            let after = first - began + at;
            vec![
                facts.label(*process_id).into(),
                i64::from(*device).into(),
                (*stream).into(),
                after.into(),
                most.into(),
            ]
        })
    });
    Table::new("over_time", "Over time (most in each span; After: since the trace began)", &COLUMNS, rows.collect())
}
