"""Kernels per step of programs that replay CUDA graphs, by the trace and by torch.profiler on the same steps.

    graphs.py run NAME OUT.json       runs under gputrace: 20 steps of NAME under torch.profiler, whose counts it writes
    graphs.py compare TRACE OUT.json  kernels and graph launches per step, the trace's beside the profiler's; 1 if they differ

NAME: `captured`, a torch.cuda.CUDAGraph; `compiled`, inference with torch.compile(mode="reduce-overhead"). PyTorch captures no
replays, so graphs in graphs are left to the simulated driver. Recording is paused but for the steps; graphs are told of all the same.
"""

import collections
import ctypes
import glob
import json
import os
import sys

STEPS = 20
SHIM = ctypes.CDLL(None)


def recording(on):
    (SHIM.gputrace_resume if on else SHIM.gputrace_pause)()


def network(torch):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return model.cuda().eval(), torch.randn(4, 128, 512, device="cuda")


def warmed_up(torch, work):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()


def captured(torch):
    model, x = network(torch)
    warmed_up(torch, lambda: model(x).sum())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        y = model(x).sum()

    def step():
        graph.replay()
        return y.item()

    return step


def compiled(torch):
    model, x = network(torch)
    fast = torch.compile(model, mode="reduce-overhead")

    def step():
        with torch.no_grad():
            return fast(x).sum().item()

    return step


PROGRAMS = dict(captured=captured, compiled=compiled)


def run(name, path):
    import torch
    from torch.profiler import ProfilerActivity, profile

    recording(False)
    step = PROGRAMS[name](torch)
    for _ in range(6):
        step()
    torch.cuda.synchronize()
    both = [ProfilerActivity.CUDA, ProfilerActivity.CPU]
    with profile(activities=both):  # its first start initialises CUPTI, which calls the driver
        step()
    with profile(activities=both) as seen:
        torch.cuda.synchronize()
        recording(True)
        result = [step() for _ in range(STEPS)]
        recording(False)
        torch.cuda.synchronize()
    trace, counts = path + ".kineto", collections.Counter()
    seen.export_chrome_trace(trace)
    with open(trace) as file:
        for event in json.load(file)["traceEvents"]:
            kind = event.get("cat")
            if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
                counts[kind] += 1
            elif kind in ("cuda_runtime", "cuda_driver") and event["name"] in ("cudaGraphLaunch", "cuGraphLaunch"):
                counts["graph_launches"] += 1
    os.unlink(trace)
    with open(path, "w") as file:
        json.dump(dict(name=name, steps=STEPS, counts=counts, result=result), file)


def table(trace, name):
    import pyarrow.parquet as parquet

    rows = []
    for path in glob.glob(f"{trace}/{name}/**/*.parquet", recursive=True):
        rows += parquet.ParquetFile(path).read().to_pylist()
    return rows


def compare(trace, path):
    with open(path) as file:
        theirs = json.load(file)
    steps, counts = theirs["steps"], theirs["counts"]
    names = {row["name_id"]: row["name"] for row in table(trace, "names")}
    launches, graphs = table(trace, "launches"), table(trace, "graphs")
    replays = [row for row in launches if names[row["api_id"]].startswith("cuGraphLaunch")]
    unknown = sum(row["kernels"] is None for row in launches)
    kernels = sum(row["kernels"] or 0 for row in launches)
    equal = not unknown and kernels == counts.get("kernel", 0) and len(replays) == counts.get("graph_launches", 0)
    print(f"graphs {theirs['name']}: {'EQUAL' if equal else 'DIFFER'}  per step: calls {len(launches) / steps:g}, kernels "
          f"{kernels / steps:g} (profiler {counts.get('kernel', 0) / steps:g}), graph launches {len(replays) / steps:g} "
          f"(profiler {counts.get('graph_launches', 0) / steps:g}); not known {unknown}", flush=True)
    used = {row["graph_exec_id"] for row in replays}
    for row in graphs:
        if row["graph_exec_id"] in used:
            of = [k for k in table(trace, "graph_kernels")
                  if (k["process_id"], k["graph_exec_id"]) == (row["process_id"], row["graph_exec_id"])]
            named = sum(k["name_id"] is not None for k in of)
            counted = {key: value for key, value in row.items()
                       if isinstance(value, int) and value and key.endswith("s") and not key.endswith("_ns")}
            print(f"    graph {row['graph_exec_id']} ({row['action']}, complete {row['complete']}): {counted}, "
                  f"{len(of)} different kernels, {named} with names")
    return 0 if equal else 1


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:4])
    else:
        sys.exit(compare(*sys.argv[2:4]))
