"""PyTorch programs for the checks on a real GPU.

    programs.py counts NAME OUT.json   10 profiled steps; writes torch.profiler's own counts beside the trace
    programs.py price NAME PAIRS [N]   step time with recording paused and resumed every N steps (20), in one process
    programs.py plain NAME STEPS       median step time, for runs with and without gputrace in turn

Recording is switched by `gputrace_pause` and `gputrace_resume`, which the injected library exports; without it the
calls are left out.
"""

import collections
import ctypes
import json
import os
import statistics
import sys
import time

import torch
import torch.nn as nn

DEVICE = "cuda"
SHIM = ctypes.CDLL(None)


def recording(on):
    try:
        (SHIM.gputrace_resume if on else SHIM.gputrace_pause)()
    except AttributeError:
        pass


def transformer(width, layers, batch, length, fused):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused, foreach=not fused)
    data = torch.randn(batch, length, width, device=DEVICE)
    host = torch.randn(batch, length, width).pin_memory()

    def step():
        data.copy_(host, non_blocking=True)
        loss = model(data).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def small():
    return transformer(256, 8, 16, 64, fused=False)


def large():
    torch.backends.cuda.matmul.allow_tf32 = True
    return transformer(2048, 12, 16, 512, fused=True)


def convolutions():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    images = torch.randn(32, 3, 64, 64, device=DEVICE)
    labels = torch.randint(0, 10, (32,), device=DEVICE)

    def step():
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    return step


def copies():
    pinned, pageable = torch.randn(1 << 20).pin_memory(), torch.randn(1 << 20)
    device = torch.empty(1 << 20, device=DEVICE)

    def step():
        device.copy_(pinned, non_blocking=True)
        device.copy_(pageable, non_blocking=True)
        pinned.copy_(device, non_blocking=True)
        device.zero_()
        torch.cuda.synchronize()
        return float(device.cpu()[0])

    return step


def streams():
    side = [torch.cuda.Stream() for _ in range(4)]
    x = [torch.randn(512, 512, device=DEVICE) for _ in side]

    def step():
        done = []
        for stream, value in zip(side, x):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                (value @ value).relu_()
                done.append(stream.record_event())
        for event in done:
            torch.cuda.current_stream().wait_event(event)
        torch.cuda.current_stream().synchronize()
        return 0.0

    return step


def graphs():
    x = torch.randn(256, 256, device=DEVICE)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            y = (x @ x).relu().sum()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x @ x).relu().sum()

    def step():
        graph.replay()
        return y.item()

    return step


def compiled():
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).to(DEVICE)
    fast = torch.compile(model, mode="reduce-overhead")
    x = torch.randn(64, 256, device=DEVICE)

    def step():
        with torch.no_grad():
            return fast(x).sum().item()

    return step


def loader():
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 100_000

        def __getitem__(self, i):
            return torch.full((1024,), float(i))

    batches = iter(torch.utils.data.DataLoader(Rows(), batch_size=64, num_workers=2, pin_memory=True))

    def step():
        return next(batches).to(DEVICE, non_blocking=True).sum().item()

    return step


PROGRAMS = dict(small=small, large=large, convolutions=convolutions, copies=copies, streams=streams, graphs=graphs,
                compiled=compiled, loader=loader)


def counts(name, out):
    from torch.profiler import ProfilerActivity, profile

    step = PROGRAMS[name]()
    for _ in range(6):
        step()
    torch.cuda.synchronize()
    # One profiler session before the counted one: its first start initialises CUPTI, which calls the driver.
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]):
        step()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        torch.cuda.synchronize()
        recording(True)
        result = [step() for _ in range(10)]
        recording(False)
        torch.cuda.synchronize()
    trace = out + ".kineto"
    seen.export_chrome_trace(trace)
    runtime, device = collections.Counter(), collections.Counter()
    with open(trace) as file:
        for event in json.load(file)["traceEvents"]:
            if event.get("cat") in ("cuda_runtime", "cuda_driver"):
                runtime[event["name"]] += 1
            elif event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                device[event["cat"]] += 1
    os.unlink(trace)
    with open(out, "w") as file:
        json.dump(dict(name=name, runtime=runtime, device=device, result=result), file)


def price(name, pairs, turn=20):
    """Steps with recording paused and on, `turn` of each in turn: the fewer, the less of the host's own drift is between them."""
    step = PROGRAMS[name]()
    for _ in range(30):
        step()
    torch.cuda.synchronize()
    on, off, differences, steps = [], [], [], {True: [], False: []}
    for pair in range(pairs):
        medians = {}
        # The order changes from pair to pair, so that a drift of the clocks falls on both.
        for recorded in ((True, False) if pair % 2 else (False, True)):
            recording(recorded)
            times = []
            for _ in range(turn):
                start = time.perf_counter()
                step()
                times.append(time.perf_counter() - start)
            medians[recorded] = statistics.median(times) * 1e3
            steps[recorded] += times
        on.append(medians[True])
        off.append(medians[False])
        differences.append((medians[True] - medians[False]) / medians[False] * 100)
    differences.sort()
    quarter = len(differences) // 4
    print(f"price {name}: {pairs} pairs of {turn} steps: paused {statistics.median(off):.3f} ms, recording "
          f"{statistics.median(on):.3f} ms, difference median {statistics.median(differences):+.2f} % "
          f"(quartiles {differences[quarter]:+.2f} .. {differences[-quarter - 1]:+.2f} %)", flush=True)
    # Half of the width of the interval that holds the median of so many pairs in 19 of 20 cases (a sign test's).
    reach = round(0.98 * pairs ** 0.5)
    middle = pairs // 2
    print(f"    95 % interval of that median {differences[max(middle - reach, 0)]:+.2f} .. {differences[min(middle + reach, pairs - 1)]:+.2f} %")
    for recorded, times in steps.items():
        times.sort()
        print(f"    {'recording' if recorded else 'paused   '}: {len(times)} steps, p50 {times[len(times) // 2] * 1e3:.3f}, "
              f"p99 {times[len(times) * 99 // 100] * 1e3:.3f}, longest {times[-1] * 1e3:.2f} ms", flush=True)


def plain(name, steps):
    step = PROGRAMS[name]()
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    times, result = [], 0.0
    for _ in range(steps):
        start = time.perf_counter()
        result = step()
        times.append(time.perf_counter() - start)
    print(f"{statistics.median(times) * 1e3:.3f} ms result {result:.6f}", flush=True)


if __name__ == "__main__":
    what, name = sys.argv[1:3]
    if what == "counts":
        recording(False)
        counts(name, sys.argv[3])
    elif what == "price":
        price(name, *map(int, sys.argv[3:]))
    else:
        plain(name, int(sys.argv[3]))
