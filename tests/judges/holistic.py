"""Holistic Trace Analysis on our export, beside our report on the same trace: holistic.py FOLDER REPORT (idle | all | launches).

`idle`: one stream, where its gaps by stream are ours by device. `all`: what does not depend on that. `launches`: launches and queues
alone, of a recorded trace, whose calls are the driver's and whose host runs before and after the GPU.
"""

import os
import sys

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # it would round each begin up and each end down to a microsecond

import logging

logging.disable(logging.WARNING)

from compare import Comparison
from hta.trace_analysis import TraceAnalysis


def ns(us):
    """Its floating point microseconds hold each ns."""
    return round(float(us) * 1000)


folder, report, what = sys.argv[1:]
hta = TraceAnalysis(trace_dir=folder)
judged = Comparison(report)

if what != "launches":
    # Idle, compute, non-compute: to the ns.
    breakdown = hta.get_temporal_breakdown(visualize=False).iloc[0]
    judged.same("range", ns(breakdown["kernel_time(us)"]), judged.fact("gpu-utilisation", "range_ns"))
    judged.same("idle", ns(breakdown["idle_time(us)"]), judged.fact("gpu-utilisation", "idle_ns"))
    judged.same("idle, as the gaps sum", ns(breakdown["idle_time(us)"]), judged.fact("gpu-gaps", "idle_ns"))
    judged.same("compute", ns(breakdown["compute_time(us)"]), judged.fact("gpu-utilisation", "compute_ns"))
    exposed = [judged.fact("gpu-utilisation", name) for name in ("communication_exposed_ns", "copies_exposed_ns")]
    judged.same("non-compute", ns(breakdown["non_compute_time(us)"]), sum(exposed))

# Queue length: its summary of the lengths after each event, by stream.
queues = hta.get_queue_length_summary(ranks=[0])["queue_length"]
ours = {row["stream"]: row for row in judged.rows("queue-length", "by_stream")}
judged.same("streams with a queue", len(queues), len(ours))
for (_, stream), queue in queues.iterrows():
    row = ours.get(stream, {})
    judged.same(f"stream {stream}: events", queue["count"], 2 * row.get("operations", 0))
    judged.same(f"stream {stream}: longest queue", queue["max"], row.get("max"))
    judged.same(f"stream {stream}: mean queue", queue["mean"], row.get("event_mean"), 0.000501)  # three digits in JSON

# The longest queue in each of our spans, of its series, which has a value for each event: the one before a span lasts into it.
series = hta.get_queue_length_time_series(ranks=[0])[0].sort_values("ts", kind="stable")
for stream, events in series.groupby("stream"):
    spans = [row for row in judged.rows("queue-length", "over_time") if row["stream"] == stream]
    times = [ns(ts) - ns(events["ts"].iloc[0]) for ts in events["ts"]]
    lengths, before, at = list(events["queue_length"]), 0, 0
    begins = [span["after_ns"] - spans[0]["after_ns"] for span in spans] + [times[-1] + 1]
    wrong = 0
    for span, end in zip(spans, begins[1:]):
        most = before
        while at < len(times) and times[at] < end:
            most, before, at = max(most, lengths[at]), lengths[at], at + 1
        wrong += span["max"] != most
    judged.same(f"stream {stream}: spans whose longest queue is another", wrong, 0)
    judged.same(f"stream {stream}: the series has spans", int(len(spans) > 5 and at == len(times)), 1)

if what != "launches":
    # The mean of its step function over each of our spans: bandwidths of the copies under way, added up.
    series = hta.get_memory_bw_time_series(ranks=[0])[0].sort_values("ts", kind="stable")
    for name, events in series.groupby("name"):
        is_ours = lambda row: name == ("Memset" if row["kind"] == "set" else f"Memcpy {row['direction']}")
        spans = [row for row in judged.rows("transfers", "over_time") if is_ours(row)]
        length = spans[1]["after_ns"] - spans[0]["after_ns"]
        moved = [0.0] * (len(spans) + 1)
        times, rates = [ns(ts) for ts in events["ts"]], list(events["memory_bw_gbps"])
        for start, end, rate in zip(times, times[1:], rates):
            while start < end:
                until = min(end, (start // length + 1) * length)
                moved[start // length] += rate * (until - start)
                start = until
        wrong = sum(abs(bytes_ / length * 1e9 - span["bandwidth_bytes_per_s"]) > 1e9 / length for bytes_, span in zip(moved, spans))
        judged.same(f"{name}: spans whose bandwidth is another", wrong, 0)
        judged.same(f"{name}: the series has spans", int(len(spans) > 5 and max(moved) > 0), 1)

# Launches: time in the call, on the GPU and between them.
launches = hta.get_cuda_kernel_launch_stats(ranks=[0], include_memory_events=False, visualize=False)[0]
kernels = judged.rows("launch-overhead", "executions")
judged.same("kernels with their launch", len(launches), judged.fact("launch-overhead", "joined_kernels"))
for name, column in [("cpu_duration", "api_total_ns"), ("gpu_duration", "kernel_total_ns"), ("launch_delay", "queue_total_ns")]:
    judged.same(name, sum(ns(us) for us in launches[name]), sum(row[column] for row in kernels))
calls, runs, delays = (launches[name].map(ns) for name in ("cpu_duration", "gpu_duration", "launch_delay"))
judged.same("short kernels", ((calls <= 50_000) & (runs < calls)).sum(), judged.fact("launch-overhead", "short_kernels"))
delayed = (delays > 100_000).sum()
judged.same("delayed over 100 us", delayed, judged.fact("launch-overhead", "delayed_100us"))

if what == "launches":
    # With copies and sets that were queued: every operation of the GPU, by the call that gave it.
    with_copies = hta.get_cuda_kernel_launch_stats(ranks=[0], include_memory_events=True, visualize=False)[0]
    copies = sum(row["copies"] for row in judged.rows("gpu-utilisation", "by_device"))
    judged.same("copies and sets with their call", len(with_copies) - len(launches), copies)
    judged.same("there are launches", int(len(launches) > 1000 and copies > 100), 1)
elif what == "all":
    overlap = hta.get_comm_comp_overlap(visualize=False).iloc[0]
    judged.same("overlap", overlap["comp_comm_overlap_pctg"], judged.fact("gpu-utilisation", "overlap_percent"), 0.00501)
else:
    # Its argument is said to be in ns and is compared with microseconds: 0.03 means 30 ns. The result has two digits.
    idle, _ = hta.get_idle_time_breakdown(ranks=[0], consecutive_kernel_delay=0.03, visualize=False)
    by_cause = dict(zip(idle["idle_category"], idle["idle_time"]))
    for cause, fact in [("host_wait", "host_wait_ns"), ("kernel_wait", "kernel_wait_ns"), ("other", "other_ns")]:
        judged.same(cause, by_cause.get(cause, 0.0), judged.fact("gpu-gaps", fact) / 1000, 0.00501)

judged.end({"all": 32, "idle": 24, "launches": 13}[what])
