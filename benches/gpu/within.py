"""What `--gpu-time auto --budget 1` costs, told within one process: `python within.py GPUTRACE FOLDER [PROGRAM:PAIRS:SECONDS[:GPU_TIME],...]`; 0 leaves a part out.

Runs of one program differ by more than a budget on most hosts, so nothing is compared between runs. Of each program two runs are made:
pairs of steps, one with recording paused and one with it, in an order that is drawn, under `--budget 1`: what hooks cost, and with GPU_TIME (events) what they and that cost; and steps for SECONDS under
`--gpu-time auto --budget 1`, of which those near each window (from BEFORE to AFTER it, while CUPTI comes and goes) are compared with those
of the seconds before and after them: what windows cost of the whole time. Intervals hold the figure in 19 of 20 cases: a sign test's of pairs,
by drawing windows anew (bootstrap) of the others. Programs: those of tails.py, and ddp: that of ddp_steps.py, a rank on each GPU, all of which
pause and record in the same steps; rank 0's are told, and how far apart the ranks opened their windows.
"""

import collections
import glob
import json
import os
import random
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import budget  # noqa: E402
import ddp_steps  # noqa: E402
import tails  # noqa: E402

# Of a window's surroundings, ns: so long before and after it CUPTI comes and goes, and so long beyond that steps are those to compare with.
BEFORE, AFTER, BESIDE = 300e6, 1500e6, 2e9
FIRST = "transformer:3000:150,generate:2000:60"


def prepared(name):
    import torch

    if name == "ddp":
        return ddp_steps.prepared()
    step = tails.PROGRAMS[name]()
    for _ in range(30):
        step()
    torch.cuda.synchronize()
    return step


def written(found, out):
    """What rank 0 found, or the only process."""
    if os.environ.get("RANK", "0") == "0":
        json.dump(found, open(out, "w"))
    if "RANK" in os.environ:
        import torch.distributed

        torch.distributed.destroy_process_group()


def pairs(name, count, out):
    """ms of a step, as (paused, recorded), of so many pairs."""
    import programs

    random.seed(2)
    step, found = prepared(name), []
    for _ in range(int(count)):
        took = {}
        # Drawn, not in turn: what a program does at certain steps (code loaded when a sequence becomes longer than 32, 64, 256) falls on both.
        for recorded in ((True, False) if random.random() < 0.5 else (False, True)):
            programs.recording(recorded)
            begin = time.perf_counter()
            step()
            took[recorded] = 1000 * (time.perf_counter() - begin)
        found.append((took[False], took[True]))
    written(found, out)


def steps(name, seconds, out):
    """When each step began, and how many ms it took."""
    step, found = prepared(name), []
    begin = time.perf_counter()
    for _ in range(20):
        step()
    # So many steps, since ranks that look at the time each for itself do not end together.
    count = float(seconds) / ((time.perf_counter() - begin) / 20)
    if name == "ddp":
        import torch

        agreed = torch.tensor([count], device="cuda")
        torch.distributed.broadcast(agreed, 0)
        count = agreed.item()
    for _ in range(int(count)):
        at, begin = time.time_ns(), time.perf_counter()
        step()
        found.append((at, 1000 * (time.perf_counter() - begin)))
    written(found, out)


def traced(name, what, much, options):
    trace = os.path.join(FOLDER, f"{what}-{name}")
    started = ddp_steps.launcher() if name == "ddp" else [sys.executable]
    command = [GPUTRACE, "-o", trace, *options, "--", *started, os.path.abspath(__file__), what, name, much, trace + ".json"]
    with open(trace + ".err", "w") as err:
        code = subprocess.run(command, stdout=err, stderr=err).returncode
    if code:
        print(f"   exit {code}\n" + open(trace + ".err").read()[-1500:], flush=True)
    return trace, json.load(open(trace + ".json"))


def hooks(name, count, gpu_time="off"):
    trace, found = traced(name, "pairs", count, ["--budget", "1", "--gpu-time", gpu_time])
    changes = sorted(100 * (on / off - 1) for off, on in found)
    middle, reach = len(changes) // 2, round(0.98 * len(changes) ** 0.5)
    share = 100 * (sum(on for _, on in found) / sum(off for off, _ in found) - 1)
    print(f"{name}, {'hooks' if gpu_time == 'off' else gpu_time}: {len(found)} pairs of steps, median {changes[middle]:+.2f} % ({changes[middle - reach]:+.2f} .. {changes[middle + reach]:+.2f}), of all time {share:+.2f} %", flush=True)
    for which, times in zip(("paused", "recorded"), zip(*found)):
        p50, p99, longest = budget.tail(times)
        slow = [(place, round(ms, 1)) for place, ms in enumerate(times) if ms > 3 * p99]
        print(f"   {which:8} p50 {p50:.3f} p99 {p99:.3f} longest {longest:.2f} ms" + (f"; pairs with steps beyond three times p99: {slow}" if slow else ""), flush=True)
    print("  ", budget.spent(trace), flush=True)


def windows_of(trace):
    """When windows began and ended, of each rank."""
    import pyarrow.parquet as parquet

    def columns(table, *names):
        files = glob.glob(os.path.join(trace, table, "**", "*.parquet"), recursive=True)
        tables = [parquet.ParquetFile(file).read() for file in files]
        return [row for t in tables for row in zip(*(t[name].cast("int64").to_pylist() for name in names))]

    # A launcher is no rank.
    ranks = {process: -1 if rank is None else rank for process, rank in columns("processes", "process_id", "rank")}
    found = collections.defaultdict(list)
    for start, took, process in columns("gpu_windows", "start_ns", "window_ns", "process_id"):
        found[ranks.get(process, -1)].append((start, start + took))
    found = {rank: windows for rank, windows in found.items() if rank >= 0} or found
    return [sorted(windows) for _, windows in sorted(found.items())]


def windows(name, seconds):
    trace, found = traced(name, "steps", seconds, budget.BUDGET)
    all_ms, near, within, excess = sum(ms for _, ms in found), set(), [], []
    ranks = windows_of(trace)
    opened = ranks[0] if ranks else []
    for rank, others in enumerate(ranks[1:], 1):
        apart = [min((begin - theirs for theirs, _ in others), key=abs) for begin, _ in opened if others]
        print(f"{name}: {len(opened)} windows of rank 0 began {json.dumps([round(ns / 1e3) for ns in apart])} us after those of rank {rank}, which had {len(others)}", flush=True)
    for place, (begin, end) in enumerate(opened):
        around = (begin - BEFORE, end + AFTER)
        inside = [(at, ms) for at, ms in found if around[0] <= at + ms * 1e6 and at <= around[1]]
        # What another window is near to is nothing to compare with.
        others = [w for i, w in enumerate(opened) if i != place]
        beside = [ms for at, ms in found if (around[0] - BESIDE <= at < around[0] - ms * 1e6 or around[1] < at <= around[1] + BESIDE)
                  and not any(a - BEFORE <= at + ms * 1e6 and at <= b + AFTER for a, b in others)]
        near.update(at for at, _ in inside)
        if inside and len(beside) > 20:
            usual = statistics.mean(beside)
            of_window = [ms for at, ms in inside if begin <= at and at + ms * 1e6 <= end]
            within += of_window
            excess.append((sum(ms for _, ms in inside) - usual * len(inside), (end - begin) / 1e6, usual, statistics.mean(of_window) if of_window else usual))
    if not excess:
        print(f"{name}, windows: {len(opened)} of them, none to compare\n   {budget.spent(trace)}", flush=True)
        return
    share = lambda some: 100 * sum(e for e, *_ in some) / len(some) * len(opened) / all_ms  # noqa: E731
    random.seed(1)
    drawn = sorted(share(random.choices(excess, k=len(excess))) for _ in range(4000))
    print(f"{name}, windows: {len(opened)} in {all_ms / 60e3:.2f} min, of {json.dumps([round(length) for _, length, *_ in excess])} ms; of all time {share(excess):+.2f} % ({drawn[100]:+.2f} .. {drawn[-101]:+.2f}); "
          f"a step beside {statistics.mean(usual for *_, usual, _ in excess):.3f} ms, in windows {statistics.mean(inside for *_, inside in excess):.3f}", flush=True)
    for which, times in (("far from windows", [ms for at, ms in found if at not in near]), ("in windows", within), ("all", [ms for _, ms in found])):
        p50, p99, longest = budget.tail(times or [0])
        print(f"   {which}: {len(times)} steps, p50 {p50:.3f} p99 {p99:.3f} longest {longest:.2f} ms", flush=True)
    print("  ", budget.spent(trace), flush=True)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for item in (sys.argv[3] if len(sys.argv) > 3 else FIRST).split(","):
        name, count, seconds, *gpu_time = item.split(":")
        if int(count):
            hooks(name, count, *gpu_time)
        if float(seconds):
            windows(name, seconds)


if __name__ == "__main__":
    if sys.argv[1] in ("pairs", "steps"):
        {"pairs": pairs, "steps": steps}[sys.argv[1]](*sys.argv[2:5])
    else:
        GPUTRACE, FOLDER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
        main()
