"""How busy the GPU is by `--gpu-time events`, beside what `--gpu-time full` says, and what events cost: `python events.py GPUTRACE FOLDER [PROGRAM,... [compare]]`.

Each program (those of gpu_time.py, and one larger than its launches) runs the same number of steps under `full` and under
`events`: busy share, and by kernel the mean of what was timed beside the mean of CUPTI's records, so that what the GPU takes to begin
and end a kernel beside an event can be read off. Then steps without `--gpu-time` and with events take turns, off, on, off, on:
medians of each run.
"""

import collections
import glob
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_time  # noqa: E402


def layers():
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(16)]).cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(2048, 4096, device="cuda", dtype=torch.bfloat16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).float().square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()

    return step


PROGRAMS = {**{name: gpu_time.PROGRAMS[name] for name in ("transformer", "gemms", "graph", "copies", "streams")}, "layers": layers}
STEPS = {"gemms": 100, "layers": 200}
COST_STEPS = {"gemms": 100, "layers": 200}


def run(name, out, steps):
    import torch

    step = PROGRAMS[name]()
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    times, marks = [], []
    for nth in range(steps):
        if nth == steps // 2:
            marks.append(time.time_ns())
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    marks.append(time.time_ns())
    with open(out, "w") as file:
        json.dump({"times": times, "marks": marks}, file)


def traced(name, how, folder, steps):
    """A run under gputrace: the trace, its steps' times in ms, and when their last half began and ended."""
    trace, out = os.path.join(folder, f"{name}-{how}"), os.path.join(folder, "steps.json")
    options = ["--gpu-time", how] if how != "off" else []
    command = [GPUTRACE, "-o", trace, "--malloc", "off", *options, "--", sys.executable, os.path.abspath(__file__), "run", name, out, str(steps)]
    subprocess.run(["rm", "-rf", trace], check=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=open(trace + ".err", "w"))
    found = json.load(open(out))
    return trace, [1000 * t for t in found["times"]], found["marks"]


def section(trace, name, *options):
    command = [GPUTRACE, "report", trace, "--only", name, "--format", "json", *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(text)["analyses"][name]


def manifest(trace):
    processes = [p for file in glob.glob(os.path.join(trace, "manifest", "*.json")) for p in json.load(open(file))["processes"]]
    return next((p["gpu_time"] for p in processes if p.get("gpu_time")), None)


def busy(trace, marks):
    """What the report says of the last half of the steps: what went before is loading and warming up."""
    started = min(json.load(open(file))["started_ns"] for file in glob.glob(os.path.join(trace, "manifest", "*.json")))
    window = [argument for option, mark in zip(("--from", "--to"), marks) for argument in (option, f"{(mark - started) / 1e9:.6f}")]
    return section(trace, "gpu-utilisation", *window)


def compare(name, folder):
    steps = STEPS.get(name, 400)
    full, full_times, full_marks = traced(name, "full", folder, steps)
    events, times, marks = traced(name, "events", folder, steps)
    theirs, ours = busy(full, full_marks)["facts"], busy(events, marks)
    device = ours["tables"]["estimated_by_device"]["rows"][0]
    print(f"{name}: busy by full {theirs['busy_percent']:.1f} % (kernels {100 * theirs['compute_ns'] / theirs['range_ns']:.1f} %; step {statistics.median(full_times):.2f} ms), "
          f"by events {ours['facts']['busy_percent']:.1f} % give or take {device['error_points']:.1f} (step {statistics.median(times):.2f} ms); {json.dumps(manifest(events)['events'])}")
    exact = collections.defaultdict(lambda: [0, 0.0])
    for row in section(full, "kernels")["tables"]["by_kernel"]["rows"]:
        known = exact[gpu_time.same(row["kernel"])]
        known[0], known[1] = known[0] + row["calls"], known[1] + row["total_ns"]
    more = []
    for row in section(events, "timed-kernels")["tables"]["by_kernel"]["rows"]:
        count, total = exact.get(gpu_time.same(row["kernel"]), (0, 0.0))
        if count and row["timed"]:
            more.append((row["timed"], row["mean_ns"] - total / count))
            if len(more) <= 8:
                print(f"   {row['launches']:7} launches {row['timed']:5} timed  mean {row['mean_ns']:9.0f} ns, CUPTI {total / count:9.0f} ns  {row['kernel'][:60]}")
    if more:
        mean = sum(n * ns for n, ns in more) / sum(n for n, _ in more)
        print(f"   events say {mean:+.0f} ns a launch beyond CUPTI, median of kernels {statistics.median(ns for _, ns in more):+.0f} ns")


def cost(name, folder):
    found = {"off": [], "events": []}
    for _ in range(4):
        for how in found:
            times = traced(name, how, folder, COST_STEPS.get(name, 1000))[1]
            found[how].append(statistics.median(times))
    pairs = [100 * (on / off - 1) for off, on in zip(found["off"], found["events"])]
    off, on = (statistics.median(found[how]) for how in found)
    print(f"{name}: step {off:.3f} ms without, {on:.3f} ms with events ({100 * (on / off - 1):+.2f} %; pairs {[round(p, 2) for p in pairs]})")


def main():
    folder = sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    only = sys.argv[3].split(",") if len(sys.argv) > 3 else list(PROGRAMS)
    for name in only:
        compare(name, folder)
    for name in only if len(sys.argv) < 5 else []:
        if name in ("transformer", "layers", "graph"):
            cost(name, folder)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        GPUTRACE = os.path.abspath(sys.argv[1])
        main()
