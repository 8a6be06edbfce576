"""Compares the counts of a trace with torch.profiler's of the same steps: compare_counts.py TRACE COUNTS.json

The profiler lists the runtime's calls (cudaLaunchKernel) and the driver calls that libraries make themselves; the trace
holds the driver's entry points, so classes are compared. A zero-byte cudaMemsetAsync returns inside the runtime and
never reaches the driver: sets are compared with the GPU's operations where the two differ.
Exits 1 when a class differs.
"""

import collections
import glob
import json
import sys

import pyarrow.parquet as parquet

RUNTIME = dict(
    launches=("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchCooperativeKernel"),
    launches_ex=("cudaLaunchKernelExC", "cuLaunchKernelEx"),
    graph_launches=("cudaGraphLaunch", "cuGraphLaunch"),
    copies=("cudaMemcpy", "cuMemcpy"),
    sets=("cudaMemset", "cuMemset"),
    stream_syncs=("cudaStreamSynchronize", "cuStreamSynchronize"),
    device_syncs=("cudaDeviceSynchronize", "cuCtxSynchronize"),
    event_syncs=("cudaEventSynchronize", "cuEventSynchronize"),
    stream_waits=("cudaStreamWaitEvent", "cuStreamWaitEvent"),
    event_records=("cudaEventRecord", "cuEventRecord"),
    event_queries=("cudaEventQuery", "cuEventQuery"),
)
PREFIXES = ("copies", "sets", "event_records")


def class_of(name):
    for key, names in RUNTIME.items():
        bare = name.removesuffix("_ptsz").removesuffix("_ptds").removesuffix("_v2")
        if bare in names or (key in PREFIXES and bare.startswith(names)):
            return key
    return None


def table(trace, name):
    rows = []
    for path in glob.glob(f"{trace}/{name}/**/*.parquet", recursive=True):
        rows += parquet.ParquetFile(path).read().to_pylist()
    return rows


def main(trace, counts):
    with open(counts) as file:
        profiled = json.load(file)
    theirs, ours, other = collections.Counter(), collections.Counter(), collections.Counter()
    for name, count in profiled["runtime"].items():
        key = class_of(name)
        if key:
            theirs[key] += count
        else:
            other[name] += count
    # Three cudaDeviceSynchronize stand outside the recorded steps: the program's before and after them, and the
    # profiler's own as it stops.
    theirs["device_syncs"] -= 3
    names = {row["name_id"]: row["name"] for row in table(trace, "names")}
    for part in ("launches", "syncs", "transfers", "api"):
        for row in table(trace, part):
            key = class_of(names[row["api_id"]])
            if key:
                ours[key] += 1
    wrong = []
    for key in RUNTIME:
        equal = theirs[key] == ours[key]
        if key == "sets" and not equal:
            equal = ours[key] == profiled["device"].get("gpu_memset", 0)
        if not equal:
            wrong.append(key)
    kernels = profiled["device"].get("kernel", 0)
    shown = "  ".join(f"{key} {theirs[key]}={ours[key]}" for key in RUNTIME if theirs[key] or ours[key])
    print(f"counts {profiled['name']}: {'EQUAL' if not wrong else 'DIFFER in ' + ','.join(wrong)}  {shown}  "
          f"(GPU kernels {kernels})", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
