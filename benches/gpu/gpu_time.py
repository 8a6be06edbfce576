"""What the GPU did, by gputrace and by torch.profiler: `python gpu_time.py GPUTRACE FOLDER [PROGRAM,...]`, and what it costs:
`python gpu_time.py GPUTRACE FOLDER cost`.

Each program runs the same fixed number of steps, once under `gputrace --gpu-time full` and once under torch.profiler (CUDA only);
kernels, copies and sets are compared by name, number and time. Then a program profiles itself under gputrace: what its
profiler sees must be what it sees without.
"""

import collections
import json
import os
import statistics
import subprocess
import sys
import time


def transformer():
    import torch

    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.0), 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    x = torch.randn(8, 64, 256, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def copies():
    import torch

    host, pinned = torch.randn(1 << 20), torch.randn(1 << 20).pin_memory()
    a = torch.zeros(1 << 20, device="cuda")

    def step():
        b = host.cuda()
        a.copy_(pinned, non_blocking=True)
        a.zero_()
        c = (a + b).cpu()
        torch.cuda.synchronize()
        return c

    return step


def streams():
    import torch

    lanes = [torch.cuda.Stream() for _ in range(4)]
    x = torch.randn(512, 512, device="cuda")

    def step():
        for lane in lanes:
            with torch.cuda.stream(lane):
                y = x @ x
                y.relu_()
        torch.cuda.synchronize()

    return step


def graph():
    import torch

    x = torch.randn(64, 256, device="cuda")
    layers = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(10)]).cuda()
    layers.requires_grad_(False)
    for _ in range(3):
        layers(x)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        layers(x)

    def step():
        captured.replay()
        torch.cuda.synchronize()

    return step


def threads():
    import threading

    import torch

    x = torch.randn(256, 256, device="cuda")

    def step():
        def work():
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(20):
                    (x + x).relu_()

        workers = [threading.Thread(target=work) for _ in range(4)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
        torch.cuda.synchronize()

    return step


def gemms():
    import torch

    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)

    def step():
        for _ in range(4):
            torch.mm(a, a, out=out)
        torch.cuda.synchronize()

    return step


PROGRAMS = {"gemms": gemms, "transformer": transformer, "copies": copies, "streams": streams, "graph": graph, "threads": threads}
WARM, STEPS = 5, 40


def events(profile):
    """Kernels, copies and sets of a torch.profiler run: name -> durations in ns."""
    found = collections.defaultdict(list)
    for event in profile.profiler.kineto_results.events():
        if str(event.device_type()).endswith("CUDA") and not event.name().startswith("ProfilerStep"):
            kind = event.activity_type() if hasattr(event, "activity_type") else ""
            if kind and kind not in ("kernel", "gpu_memcpy", "gpu_memset"):
                continue
            found[event.name()].append(event.duration_ns() if hasattr(event, "duration_ns") else event.duration_us() * 1000)
    return found


def cost(step, profiled):
    """Median of 300 steps, ms."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    def measure():
        times = []
        for _ in range(300):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
        return statistics.median(times) * 1000

    if not profiled:
        return measure()
    with profile(activities=[ProfilerActivity.CUDA]):
        return measure()


def costs(me):
    """Step times without anything, traced without and with GPU times, and under torch.profiler, in turn."""
    names = ["plain", "gputrace", "gputrace --gpu-time full", "torch.profiler (CUDA)"]
    for program in ("transformer", "gemms"):
        found = {name: [] for name in names}
        for turn in range(3):
            for name in names:
                out = os.path.join(FOLDER, "cost.json")
                command = me + ["run", program, "cost-profile" if name.startswith("torch") else "cost", out]
                if name.startswith("gputrace"):
                    trace = os.path.join(FOLDER, f"cost-{program}-{turn}-{len(name)}")
                    full = ["--gpu-time", "full"] if "full" in name else []
                    command = [GPUTRACE, "-o", trace, *full, "--"] + command
                subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
                found[name] += json.load(open(out))["found"]["step_ms"]
        plain = statistics.median(found["plain"])
        for name, times in found.items():
            middle = statistics.median(times)
            print(f"{program:12} {name:26} {middle:8.3f} ms {100 * (middle / plain - 1):+6.1f} %  {[round(t, 3) for t in times]}")


def run(name, how, out):
    import torch
    from torch.profiler import ProfilerActivity, profile

    step = PROGRAMS[name]()
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    marks = [time.time_ns()]
    if how in ("cost", "cost-profile"):
        found = {"step_ms": [cost(step, how == "cost-profile")]}
    elif how == "profile":
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(STEPS):
                step()
            torch.cuda.synchronize()
        found = events(seen)
        if out.endswith(".again"):
            time.sleep(2.5)
            for _ in range(STEPS):
                step()
            torch.cuda.synchronize()
    else:
        found, times = {}, []
        for _ in range(STEPS):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
        found["step_ms"] = [statistics.median(times) * 1000]
    marks.append(time.time_ns())
    with open(out, "w") as file:
        json.dump({"marks": marks, "found": found}, file)


def traced(trace, marks, exported):
    """Kernels, copies and sets of a trace that began between two moments."""
    subprocess.run([GPUTRACE, "export", trace, "--format", "kineto", "-o", exported], check=True, stderr=subprocess.DEVNULL)
    with open(exported) as file:
        rows = json.load(file)["traceEvents"]
    found = collections.defaultdict(list)
    calls, joined = {}, 0
    for row in rows:
        if row.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            found[row["name"]].append(row["dur"] * 1000)
            joined += 1 if "correlation" in row.get("args", {}) else 0
    return found, joined


def same(name):
    """torch.profiler shows demangled names and ours may be; compare what stands before the arguments."""
    return name.replace("(anonymous namespace)", "").replace(" ", "").split("(")[0].replace("void", "", 1)


def summed(found):
    total = collections.defaultdict(list)
    for name, times in found.items():
        total[same(name)] += times
    return total


def main():
    os.makedirs(FOLDER, exist_ok=True)
    me = [sys.executable, os.path.abspath(__file__)]
    if sys.argv[3:] == ["cost"]:
        return costs(me)
    only = sys.argv[3].split(",") if len(sys.argv) > 3 else list(PROGRAMS)
    for name in only:
        base = os.path.join(FOLDER, name)
        subprocess.run(me + ["run", name, "profile", base + ".plain"], check=True)
        subprocess.run([GPUTRACE, "-o", base + ".trace", "--gpu-time", "full", "--malloc", "off", "--"] + me + ["run", name, "steps", base + ".steps"], check=True, stderr=open(base + ".err", "w"))
        plain = json.load(open(base + ".plain"))
        steps = json.load(open(base + ".steps"))
        found, joined = traced(base + ".trace", steps["marks"], base + ".json")
        theirs, ours = summed(plain["found"]), summed(found)
        manifest = json.load(open([os.path.join(base + ".trace/manifest", f) for f in os.listdir(base + ".trace/manifest")][0]))
        about = [p.get("gpu_time") for p in manifest["processes"] if p.get("gpu_time")]
        n_theirs, n_ours = sum(map(len, theirs.values())), sum(map(len, ours.values()))
        print(f"{name}: torch.profiler {n_theirs} in {STEPS} steps; gputrace {n_ours} in {STEPS + WARM} and the making")
        print("  ", json.dumps(about))
        for key, times in sorted(theirs.items(), key=lambda item: -sum(item[1]))[:6]:
            mine = ours.get(key, [])
            last = mine[-len(times):]
            ratio = statistics.median(last) / statistics.median(times) if last else float("nan")
            total = sum(last) / sum(times) if last else float("nan")
            print(f"   {len(times):6} {len(mine):6}  median {ratio:.3f}  sum {total:.3f}  {key[:70]}")
        missing = [key for key, times in theirs.items() if len(ours.get(key, [])) < len(times)]
        print("   fewer than torch.profiler:", [(key[:50], len(theirs[key]), len(ours.get(key, []))) for key in missing][:5])
    name = "transformer"
    base = os.path.join(FOLDER, "aside")
    subprocess.run([GPUTRACE, "-o", base + ".trace", "--gpu-time", "full", "--malloc", "off", "--"] + me + ["run", name, "profile", base + ".again"], check=True, stderr=open(base + ".err", "w"))
    again, plain = json.load(open(base + ".again"))["found"], json.load(open(os.path.join(FOLDER, name + ".plain")))["found"]
    equal = {k: len(v) for k, v in again.items()} == {k: len(v) for k, v in plain.items()}
    manifest = json.load(open([os.path.join(base + ".trace/manifest", f) for f in os.listdir(base + ".trace/manifest")][0]))
    print("profiled by itself under gputrace:", "EQUAL" if equal else "DIFFERENT", sum(map(len, again.values())), sum(map(len, plain.values())))
    print("  ", json.dumps([p.get("gpu_time") for p in manifest["processes"] if p.get("gpu_time")]))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:5])
    else:
        GPUTRACE, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
        main()
