#!/usr/bin/env python3
"""How far a trace's times are off the program's own clock, minute by minute, over a long run.

usage: benches/clock.py GPUTRACE DRIVERS FOLDER [SECONDS], or compare FOLDER

GPUTRACE is the command; DRIVERS a folder with the simulated libcuda.so.1 and libcupti.so.13; FOLDER is made, and holds the trace and
what the program noted. An hour unless told. The program launches fifty kernels a second and reads CLOCK_MONOTONIC right before and after each
call; the trace was stamped with the processor's counter in between, and converted by another process. Prints for each minute the
median distance of the two, beside that of the first, and between which bounds any one call lay. Needs pyarrow.
"""

import array
import ctypes
import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HZ = 50


def work(seconds, out):
    """Launches kernels and notes the clock around each call: pairs of ns."""
    cuda = ctypes.CDLL("libcuda.so.1")
    pointer = ctypes.c_void_p
    device, context, module, kernel = ctypes.c_int(), pointer(), pointer(), pointer()
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuModuleLoadData(ctypes.byref(module), b"fakecuda:tick_spin_us_20") == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"tick_spin_us_20") == 0
    noted, began = array.array("q"), time.monotonic()
    for n in range(int(seconds * HZ)):
        time.sleep(max(0, began + n / HZ - time.monotonic()))
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        result = cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None)
        noted.extend((before, time.clock_gettime_ns(time.CLOCK_MONOTONIC)))
        assert result == 0
    with open(out, "wb") as file:
        noted.tofile(file)


def compare(folder):
    import pyarrow.dataset

    noted = array.array("q")
    path = folder / "noted"
    with open(path, "rb") as file:
        noted.fromfile(file, path.stat().st_size // 8)
    table = pyarrow.dataset.dataset(folder / "trace" / "launches", format="parquet", partitioning="hive").to_table(columns=["start_ns", "api_ns"])
    rows = sorted(zip(table["start_ns"].to_pylist(), table["api_ns"].to_pylist()))
    pairs = list(zip(noted[::2], noted[1::2]))
    assert len(rows) == len(pairs), f"{len(rows)} launches in the trace, {len(pairs)} made"
    off_ns = rows[0][0] - pairs[0][0]
    # Twice the middle of a call by either clock, in whole ns; a call that was interrupted says nothing of clocks.
    calls = [(before, (2 * (start - off_ns) + took - before - after) / 2, after - before - took) for (before, after), (start, took) in zip(pairs, rows)]
    first = calls[0][0]
    minutes = {}
    for before, off, slack in calls:
        if slack < 5_000:
            minutes.setdefault((before - first) // 60_000_000_000, []).append((off, slack))
    base = statistics.median(off for off, _ in minutes[0])
    medians = {minute: statistics.median(off for off, _ in values) - base for minute, values in minutes.items()}
    for minute, values in minutes.items():
        print(f"minute {minute:3d}: median {medians[minute]:+7.0f} ns, {len(values)} calls, {min(off for off, _ in values) - base:+.0f} .. {max(off for off, _ in values) - base:+.0f}")
    offs = [(off - base, slack) for values in minutes.values() for off, slack in values]
    print(f"medians of {len(medians)} minutes: {min(medians.values()):+.0f} .. {max(medians.values()):+.0f} ns beside the first")
    print(f"single calls: {min(off for off, _ in offs):+.0f} .. {max(off for off, _ in offs):+.0f} ns; "
          f"beyond half of the time that the two readings took around the call: {sum(abs(off) > slack / 2 + 1000 for off, slack in offs)} by over 1 us")
    for path in glob.glob(str(folder / "trace" / "manifest" / "*.json")):
        manifest = json.load(open(path))
        print("manifest:", json.dumps({"error_ns": manifest["clock"].get("error_ns"), "rejected": manifest["clock"].get("rejected"), "gpu_time": [
            {key: process["gpu_time"].get(key) for key in ("alignment_error_ns", "violations", "records", "joined") if key in process["gpu_time"]}
            for process in manifest["processes"] if process.get("gpu_time")]}))


def main():
    if sys.argv[1] == "work":
        return work(float(sys.argv[2]), sys.argv[3])
    if sys.argv[1] == "compare":
        return compare(pathlib.Path(sys.argv[2]))
    gputrace, drivers, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    seconds = sys.argv[4] if len(sys.argv) > 4 else "3600"
    folder.mkdir(parents=True)
    environment = dict(os.environ, LD_LIBRARY_PATH=drivers)
    subprocess.run([gputrace, "--gpu-time", "full", "--malloc", "off", "-o", folder / "trace", "--",
                    sys.executable, __file__, "work", seconds, folder / "noted"], check=True, env=environment)
    compare(folder)


main()
