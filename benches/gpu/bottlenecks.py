"""Six bottlenecks as PyTorch programs on a real GPU: `python bottlenecks.py GPUTRACE FOLDER`.

Each is run as it is and fixed, alternately, without a profiler: that is what the fix really gains. Then torch.profiler looks
at steps of both, which it names; `gputrace import` makes traces of its files, and the report's first finding and
gain stand beside the real gain. Then both are run by themselves under `gputrace --gpu-time full`, where nothing names their
steps: what its report finds, with the line. A well-tuned loop of matrix products comes last, and should have no finding.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time

import torch

STEPS, ROUNDS, RECORDED = 60, 3, 400


def host_work(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def gemms(size, count):
    a, b = torch.randn(size, size, device="cuda", dtype=torch.bfloat16), torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)

    def work():
        for _ in range(count):
            torch.mm(a, b, out=out)
        return out

    return work


def launches(fixed):
    x = torch.randn(64, 256, device="cuda")
    layers = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256)) for _ in range(40)])
    layers = layers.cuda().requires_grad_(False)
    if not fixed:
        return lambda step: layers(x)
    for _ in range(3):
        layers(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layers(x)
    return lambda step: graph.replay()


def waits(fixed):
    work = gemms(4096, 8)

    def step(number):
        loss = work()[0, 0]
        if not fixed or number % 50 == 49:
            loss.item()
        host_work(0.0012)

    return step


def transfers(fixed):
    work, size = gemms(4096, 8), 32 << 20
    if not fixed:
        host = torch.empty(size, dtype=torch.uint8)

        def step(number):
            host.to("cuda", non_blocking=True)
            work()

        return step
    host, ahead = torch.empty(size, dtype=torch.uint8).pin_memory(), torch.cuda.Stream()
    target = torch.empty(size, dtype=torch.uint8, device="cuda")

    def step(number):
        with torch.cuda.stream(ahead):
            target.copy_(host, non_blocking=True)
        work()

    return step


def copies(fixed):
    """The host never waits: it is many steps ahead, and every copy stands in the queue of the products."""
    work, size = gemms(4096, 8), 48 << 20
    host, beside = torch.empty(size, dtype=torch.uint8).pin_memory(), torch.cuda.Stream()
    target = torch.empty(size, dtype=torch.uint8, device="cuda")
    stream = beside if fixed else torch.cuda.current_stream()

    def step(number):
        with torch.cuda.stream(stream):
            target.copy_(host, non_blocking=True)
        work()

    return step


def allocations(fixed):
    work = gemms(4096, 8)

    def step(number):
        torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        work()
        if not fixed:
            torch.cuda.empty_cache()
        host_work(0.0008)

    return step


def inputs(fixed):
    work = gemms(4096, 8)

    def load():
        time.sleep(0.004)

    if not fixed:
        def step(number):
            load()
            work()

        return step
    ready = queue.Queue(16)

    def loader():
        while True:
            load()
            ready.put(None)

    for _ in range(6):
        threading.Thread(target=loader, daemon=True).start()

    def step(number):
        ready.get()
        work()

    return step


def tuned(fixed):
    work = gemms(8192, 4)
    return lambda step: work()


def timed(step):
    """Milliseconds a step, of steps that follow each other freely."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for number in range(STEPS):
        step(number)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1000 / STEPS


def profiled(step, name):
    """The report on a profile of the steps."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for number in range(STEPS):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step(number)
        torch.cuda.synchronize()
    file, trace = os.path.join(FOLDER, name + ".json"), os.path.join(FOLDER, name)
    profile.export_chrome_trace(file)
    subprocess.run([GPUTRACE, "import", file, "-o", trace], check=True, stderr=subprocess.DEVNULL)
    text = subprocess.run([GPUTRACE, "report", trace, "--only", "summary", "--format", "json"], capture_output=True, text=True).stdout
    subprocess.run([GPUTRACE, "report", trace, "-o", trace + ".txt"])
    return json.loads(text)["analyses"]["summary"]


def recorded(name, variant):
    """The report on a run of its own under gputrace."""
    trace = os.path.join(FOLDER, f"{name}-{variant}-recorded")
    command = [GPUTRACE, "-o", trace, "--gpu-time", "full", "--", sys.executable, os.path.abspath(__file__), "run", name, variant]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    text = subprocess.run([GPUTRACE, "report", trace, "--only", "summary", "--format", "json"], capture_output=True, text=True).stdout
    subprocess.run([GPUTRACE, "report", trace, "-o", trace + ".txt"])
    return json.loads(text)["analyses"]["summary"]


def told(summary):
    """Verdict, and findings with their gain."""
    rows = summary["tables"].get("findings", {}).get("rows", [])
    names = ", ".join(f"{row['name']} {row['gain_percent'] or 0:.0f} %" for row in rows) or "none"
    return rows, f"{summary['facts']['verdict']}: {names}"


PROGRAMS = {"launches": launches, "waits": waits, "transfers": transfers, "copies": copies, "allocations": allocations, "input": inputs, "tuned": tuned}


def main():
    os.makedirs(FOLDER, exist_ok=True)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for name, make in PROGRAMS.items():
        bad, fixed = make(False), make(True)
        for step in (bad, fixed):
            timed(step)
        times = [(timed(bad), timed(fixed)) for _ in range(ROUNDS)]
        before, after = (sorted(column)[ROUNDS // 2] for column in zip(*times))
        print(f"{name}: bad {before:.3f} ms, fixed {after:.3f} ms, gained {100 * (1 - after / before):.1f} %")
        for way, look in (("torch.profiler", lambda variant, step: profiled(step, f"{name}-{variant}")), ("recorded", lambda variant, _: recorded(name, variant))):
            rows, found = told(look("bad", bad))
            _, left = told(look("fixed", fixed))
            print(f"   {way}: {found} | fixed: {left}", flush=True)
            if rows:
                print(f"      {rows[0]['gain_percent']:.1f} %: {rows[0]['evidence'][:300]}", flush=True)


if sys.argv[1] == "run":
    one = PROGRAMS[sys.argv[2]](sys.argv[3] == "fixed")
    for nth in range(RECORDED):
        one(nth)
    torch.cuda.synchronize()
else:
    GPUTRACE, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
    main()
