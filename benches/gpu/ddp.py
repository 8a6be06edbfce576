"""Data-parallel training over NCCL, against torch.profiler: counts and bytes of the collectives on each rank.

    gputrace -o TRACE -- torchrun --nproc-per-node 2 ddp.py run STEPS OUT
    ddp.py compare TRACE OUT

`run` trains with DistributedDataParallel, with a few other collectives in each step, and writes what the profiler saw of
the steps to OUT/rank-N.json and prints it. Recording is on during exactly these steps. `compare` holds each rank's rows of
`collectives` against its profiler's, and the ranks against each other. Exits 1 when something differs.
"""

import collections
import ctypes
import glob
import json
import os
import sys

SIZES = dict(Float=4, Double=8, Half=2, BFloat16=2, Long=8, Int=4, Short=2, Char=1, Byte=1, Bool=1)
# The profiler's names of what one function of NCCL does.
FUNCTIONS = dict(
    ncclAllReduce=("allreduce", "all_reduce", "allreduce_coalesced"),
    ncclBcast=("broadcast", "_broadcast_oop"),
    ncclAllGather=("_allgather_base", "all_gather_into_tensor", "allgather_into_tensor_coalesced"),
    ncclReduceScatter=("_reduce_scatter_base", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced"),
)


def run(steps, out):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    shim = ctypes.CDLL(None)

    def recording(on):
        try:
            (shim.gputrace_resume if on else shim.gputrace_pause)()
        except AttributeError:
            pass

    # Communicators are told of while recording is paused, too.
    recording(False)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)

    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device), device_ids=[device.index], bucket_cap_mb=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    part = torch.ones(1000, device=device, dtype=torch.bfloat16)
    whole = torch.empty(1000 * world, device=device, dtype=torch.bfloat16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(64, 1024, device=device)).square().mean().backward()
        optimizer.step()
        dist.all_reduce(part)
        dist.broadcast(part, src=0)
        dist.all_gather_into_tensor(whole, part)
        dist.reduce_scatter_tensor(part, whole)

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    recording(True)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    recording(False)
    os.makedirs(out, exist_ok=True)
    timeline = os.path.join(out, f"timeline-{rank}.json")
    profiler.export_chrome_trace(timeline)
    with open(timeline) as file:
        events = json.load(file)["traceEvents"]
    seen, kernels = {}, collections.Counter()
    for event in events:
        arguments = event.get("args", {})
        if event.get("name") == "record_param_comms" and "Collective name" in arguments:
            scatter = "reduce_scatter" in arguments["Collective name"]
            elements = arguments["Out msg nelems" if scatter else "In msg nelems"]
            entry = seen.setdefault(arguments["Collective name"], [0, 0])
            entry[0] += 1
            entry[1] += int(elements) * SIZES.get(arguments.get("dtype"), 0)
        if event.get("cat") == "kernel" and "nccl" in event.get("name", ""):
            kernels[event["name"].split("(")[0]] += 1
    result = dict(rank=rank, world=world, steps=steps, collectives=seen, kernels=kernels)
    with open(os.path.join(out, f"rank-{rank}.json"), "w") as file:
        json.dump(result, file)
    print(json.dumps(result), flush=True)
    dist.destroy_process_group()


def table(trace, name):
    import pyarrow.parquet as parquet

    rows = []
    for path in glob.glob(f"{trace}/{name}/**/*.parquet", recursive=True):
        rows += parquet.ParquetFile(path).read().to_pylist()
    return rows


def traced(trace):
    """Counts and bytes by rank and function, and each rank's unique ids."""
    names = {row["name_id"]: row["name"] for row in table(trace, "names")}
    ranks = {row["process_id"]: row["rank"] for row in table(trace, "processes")}
    sums = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0]))
    for row in table(trace, "collectives"):
        if row["kind"] in ("collective", "point_to_point"):
            entry = sums[ranks[row["process_id"]]][names[row["api_id"]]]
            entry[0] += 1
            entry[1] += row["bytes"]
    ids = collections.defaultdict(set)
    for row in table(trace, "communicators"):
        ids[ranks[row["process_id"]]].add((row["unique_id"], row["ranks"]))
    return sums, ids


def compare(trace, out):
    sums, ids = traced(trace)
    wrong = 0
    for path in sorted(glob.glob(f"{out}/rank-*.json")):
        with open(path) as file:
            profiled = json.load(file)
        rank = profiled["rank"]
        left = dict(profiled["collectives"])
        for function, theirs in FUNCTIONS.items():
            expected = [sum(left.get(name, (0, 0))[part] for name in theirs) for part in (0, 1)]
            for name in theirs:
                left.pop(name, None)
            found = list(sums[rank].pop(function, (0, 0)))
            equal = found == expected and expected[0] > 0
            wrong += not equal
            print(f"rank {rank} {function}: {'EQUAL' if equal else 'DIFFERS'}  profiler {expected}  trace {found}")
        if left or sums[rank]:
            wrong += 1
            print(f"rank {rank}: only in the profiler {left}, only in the trace {dict(sums[rank])}")
    all_sums, _ = traced(trace)
    worlds = [{name: tuple(values) for name, values in of_rank.items()} for of_rank in all_sums.values()]
    same = len(worlds) > 1 and all(world == worlds[0] for world in worlds)
    together = len(ids) > 1 and len({frozenset(of_rank) for of_rank in ids.values()}) == 1
    print(f"ranks in the trace: {sorted(all_sums)}; counts and bytes equal on all: {same}; communicators: {together}")
    return 1 if wrong or not same or not together else 0


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(int(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(compare(*sys.argv[2:4]))
