"""Six bottlenecks as PyTorch programs on a real GPU: `python bottlenecks.py GPUTRACE FOLDER`.

Each is run as it is and fixed, alternately, without a profiler: that is what the fix really gains. Then torch.profiler looks
at steps of both, which it names; `gputrace import` makes traces of its files, and the report's first finding and
gain stand beside the real gain. A well-tuned loop of matrix products comes last, and should have no finding.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time

import torch

GPUTRACE, FOLDER = sys.argv[1], sys.argv[2]
STEPS, ROUNDS = 60, 3


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


print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
print(f"{'program':12} {'bad ms':>8} {'fixed ms':>8} {'gain':>6} {'told':>6}  bad: verdict, findings | fixed: findings")
for name, make in [("launches", launches), ("waits", waits), ("transfers", transfers), ("copies", copies), ("allocations", allocations), ("input", inputs), ("tuned", tuned)]:
    bad, fixed = make(False), make(True)
    for step in (bad, fixed):
        timed(step)
    times = [(timed(bad), timed(fixed)) for _ in range(ROUNDS)]
    before, after = (sorted(column)[ROUNDS // 2] for column in zip(*times))
    summaries = [profiled(step, f"{name}-{variant}") for step, variant in ((bad, "bad"), (fixed, "fixed"))]
    found = [s["tables"].get("findings", {}).get("rows", []) for s in summaries]
    told = found[0][0]["gain_percent"] if found[0] else 0.0
    names = [", ".join(f"{row['name']} {row['gain_percent']:.0f} %" for row in rows) or "none" for rows in found]
    verdict = summaries[0]["facts"]["verdict"]
    print(f"{name:12} {before:8.3f} {after:8.3f} {100 * (1 - after / before):5.1f}% {told:5.1f}%  {verdict}, {names[0]} | {names[1]}", flush=True)
