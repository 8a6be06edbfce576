"""`gputrace report` beside Holistic Trace Analysis and DuckDB, on the same data in the same run:
`python compare.py GPUTRACE MAKE_TRACE FOLDER [EVENTS]`, with a Python that has HolisticTraceAnalysis and duckdb.

A made-up loop (collectors/examples/make_trace.rs) is written as a trace and exported as torch.profiler would have written it.
HTA reads that file and gives its reports; gputrace imports it and answers everything. Then single questions: DuckDB's SQL on the
trace's Parquet files, of which only the query is timed, beside whole runs of gputrace. Medians of ROUNDS, in turn.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ROUNDS = 5

# What `report --only NAME` answers, in SQL that answers its main tables: one query each.
CALLS = " UNION ALL ".join(f"SELECT api_id, api_ns FROM {{{table}}}" for table in ("launches", "transfers", "syncs"))
WORK = "SELECT start_ns AS a, start_ns + gpu_ns AS b FROM {kernels} UNION ALL SELECT start_ns, start_ns + gpu_ns FROM {device_copies}"
JOINED = "SELECT start_ns AS a, start_ns + gpu_ns AS b, process_id AS p, correlation_id AS c FROM {{{}}}"
KERNELS = "SELECT start_ns AS a, start_ns + gpu_ns AS b FROM {kernels}"


def before(work):
    """Intervals, each with the end of what was before it."""
    return f"SELECT a, b, max(b) OVER (ORDER BY a, b ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM ({work})"


def covered(work):
    """Time that intervals cover."""
    return f"SELECT sum(b - greatest(a, coalesce(before, a))) FROM ({before(work)}) WHERE before IS NULL OR b > before"


def changes(ends, part):
    """How much of what begins (1) and ends (-1) there is from each time to the next, in each part."""
    over = f"OVER ({part} ORDER BY t, d)"
    return f"SELECT *, sum(d) {over} AS n, lead(t) {over} AS next FROM ({ends})"


SUMS = "count(*), sum({0}), min({0}), max({0}), median({0}), stddev({0})"
# A launch and its kernel: time in the call, in the queue, of the kernel and in all, as Nsight Systems calls them.
LAUNCHED = """SELECT l.api_id, k.name_id, l.api_ns AS a, greatest(k.start_ns - l.start_ns - l.api_ns, 0) AS q, k.gpu_ns AS k,
    greatest(l.start_ns + l.api_ns, k.start_ns + k.gpu_ns) - l.start_ns AS t
    FROM {kernels} k JOIN {launches} l USING (process_id, correlation_id)"""
BEGUN = "SELECT stream, process_id, correlation_id, start_ns AS begun_ns FROM {{{}}}"
GIVEN = "SELECT process_id, correlation_id, start_ns AS given_ns FROM {{{}}}"
QUEUED = f"""WITH work AS (SELECT * FROM ({BEGUN.format('kernels')} UNION ALL {BEGUN.format('device_copies')})
    JOIN ({GIVEN.format('launches')} UNION ALL {GIVEN.format('transfers')}) USING (process_id, correlation_id))
    SELECT stream, given_ns AS t, 1 AS d FROM work UNION ALL SELECT stream, begun_ns, -1 FROM work"""
OF_STREAMS = "SELECT stream, gpu_ns FROM {kernels} UNION ALL SELECT stream, gpu_ns FROM {device_copies}"
ENDS = f"SELECT a AS t, 1 AS d FROM ({WORK}) UNION ALL SELECT b, -1 FROM ({WORK})"
QUESTIONS = {
    "kernels": (
        "kernels by name, and by shape",
        f"SELECT name_id, {SUMS.format('gpu_ns')} FROM {{kernels}} GROUP BY ALL",
        f"SELECT name_id, grid_x, grid_y, grid_z, block_x, block_y, block_z, {SUMS.format('gpu_ns')} FROM {{kernels}} GROUP BY ALL",
    ),
    "api": ("calls by function", f"SELECT api_id, {SUMS.format('api_ns')} FROM ({CALLS}) GROUP BY ALL"),
    "transfers": (
        "copies by direction, on the GPU, and exposed",
        f"SELECT direction, {SUMS.format('api_ns')}, sum(bytes) FROM {{transfers}} GROUP BY ALL",
        f"SELECT direction, {SUMS.format('gpu_ns')}, sum(bytes) FROM {{device_copies}} GROUP BY ALL",
        f"SELECT ({covered(WORK)}) - ({covered(KERNELS)})",
    ),
    "gpu-utilisation": ("busy time, in all and of kernels", covered(WORK), covered(KERNELS)),
    "gpu-gaps": (
        "idle time, by whether the host was late",
        "SELECT s >= before, count(*), sum(a - before) FROM (SELECT a, p, c, max(b) OVER "
        "(ORDER BY a, b ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM "
        f"({JOINED.format('kernels')} UNION ALL {JOINED.format('device_copies')})) JOIN "
        "(SELECT process_id AS p, correlation_id AS c, start_ns AS s FROM {launches} UNION ALL "
        "SELECT process_id, correlation_id, start_ns FROM {transfers}) USING (p, c) WHERE a > before GROUP BY ALL",
    ),
    "launch-overhead": (
        "launches by function and thread, and with their kernels",
        f"SELECT tid, api_id, {SUMS.format('api_ns')} FROM {{launches}} GROUP BY ALL",
        f"SELECT api_id, name_id, {', '.join(SUMS.format(part) for part in 'aqkt')} FROM ({LAUNCHED}) GROUP BY ALL",
    ),
    "queue-length": (
        "work that waits, by stream",
        f"SELECT stream, max(n), sum(n * (next - t)) / sum(next - t) FROM ({changes(QUEUED, 'PARTITION BY stream')}) GROUP BY ALL",
    ),
    "streams": (
        "work by stream, and time with two or more at once",
        f"SELECT stream, count(*), sum(gpu_ns) FROM ({OF_STREAMS}) GROUP BY ALL",
        covered(WORK),
        f"SELECT sum(next - t) FROM ({changes(ENDS, '')}) WHERE n >= 2",
    ),
}


def run(*command):
    """Seconds and peak MiB of a command."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} ended with status {status}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def holistic(file):
    """HTA's reports that tests/judges compares with ours."""
    import logging

    logging.disable(logging.WARNING)
    from hta.trace_analysis import TraceAnalysis

    hta = TraceAnalysis(trace_files={0: file}, trace_dir=os.path.dirname(file))
    hta.get_temporal_breakdown(visualize=False)
    hta.get_queue_length_summary(ranks=[0])
    hta.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
    hta.get_comm_comp_overlap(visualize=False)
    hta.get_idle_time_breakdown(ranks=[0], visualize=False)


def main(gputrace, make_trace, folder, events="1000000"):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    made, imported = os.path.join(folder, "made"), os.path.join(folder, "imported")
    file = os.path.join(folder, "rank0.json")
    run(make_trace, made, events)
    run(gputrace, "export", made, "--format", "kineto", "-o", file)
    print(f"{events} events, {os.path.getsize(file) >> 20} MiB of JSON")
    ours = [run(gputrace, "import", file, "-o", imported), run(gputrace, "report", imported)]
    theirs = run(sys.executable, "-B", __file__, "--holistic", file)
    print(f"HTA, five reports: {theirs[0]:.1f} s, {theirs[1]:.0f} MiB")
    both = ours[0][0] + ours[1][0], max(ours[0][1], ours[1][1])
    for what, (seconds, mib) in zip(("import", "every analysis", "both"), (*ours, both)):
        print(f"gputrace, {what}: {seconds:.2f} s, {mib:.0f} MiB: {theirs[0] / seconds:.0f} times faster, {theirs[1] / mib:.0f} times less memory")

    import duckdb

    tables = {table: f"read_parquet('{made}/{table}/*/*.parquet')" for table in ("kernels", "device_copies", "launches", "transfers", "syncs")}
    for only, (title, *queries) in QUESTIONS.items():
        seconds = {"gputrace": [], "DuckDB": []}
        for _ in range(ROUNDS):
            seconds["gputrace"].append(run(gputrace, "report", made, "--only", only, "--format", "json")[0])
            began = time.perf_counter()
            connection = duckdb.connect()
            for query in queries:
                connection.execute(query.format(**tables)).fetchall()
            seconds["DuckDB"].append(time.perf_counter() - began)
        one, other = (statistics.median(of) for of in seconds.values())
        print(f"{title} (--only {only}): gputrace {one:.3f} s, DuckDB {other:.3f} s: {one / other:.2f} of its time")


if sys.argv[1] == "--holistic":
    holistic(sys.argv[2])
else:
    main(*sys.argv[1:])
