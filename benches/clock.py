#!/usr/bin/env python3
"""How far a trace's times are off the program's own clock, minute by minute, over a long run.

usage: benches/clock.py GPUTRACE DRIVERS FOLDER [SECONDS], or compare FOLDER

GPUTRACE is the command; DRIVERS a folder with the simulated libcuda.so.1 and libcupti.so.13, or, on a real GPU, one with the toolkit's or a
wheel's libcupti; FOLDER is made, and holds the trace and what the program noted. An hour unless told, or until a file FOLDER/stop is there. The program launches
fifty kernels a second, waits for each, and reads CLOCK_MONOTONIC right before and after the call and after the wait; the trace was stamped with the processor's counter
in between, and converted by another process. Prints for each minute the median distance of the two, beside that of the first, and between which bounds any one
call lay. For the GPU's clock: how long after its call's begin a kernel began, and how long before the wait's end it ended, by the trace and by the program, each minute's medians
and least: a clock that drifts makes the one longer and the other shorter. Needs pyarrow.
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
# For a driver that loads code: a kernel that does nothing.
PTX = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry tick_spin_us_20()\n{\n  ret;\n}\n\0"


def work(seconds, out):
    """Launches kernels and notes the clock around each call: pairs of ns."""
    cuda = ctypes.CDLL("libcuda.so.1")
    pointer = ctypes.c_void_p
    device, context, module, kernel = ctypes.c_int(), pointer(), pointer(), pointer()
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuModuleLoadData(ctypes.byref(module), b"fakecuda:tick_spin_us_20") == 0 or cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"tick_spin_us_20") == 0
    noted, began = array.array("q"), time.monotonic()
    stop = pathlib.Path(out).parent / "stop"
    for n in range(int(seconds * HZ)):
        if n % HZ == 0 and stop.exists():
            break
        time.sleep(max(0, began + n / HZ - time.monotonic()))
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        result = cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        waited = cuda.cuCtxSynchronize()
        noted.extend((before, after, time.clock_gettime_ns(time.CLOCK_MONOTONIC)))
        assert result == 0 and waited == 0
    with open(out, "wb") as file:
        noted.tofile(file)


def compare(folder):
    import pyarrow.dataset

    noted = array.array("q")
    path = folder / "noted"
    with open(path, "rb") as file:
        noted.fromfile(file, path.stat().st_size // 8)
    read = lambda name, *columns: (lambda table: sorted(zip(*(table[column].cast("int64").to_pylist() for column in columns))))(  # noqa: E731
        pyarrow.dataset.dataset(folder / "trace" / name, format="parquet", partitioning="hive").to_table(columns=list(columns)))
    launches, kernels = read("launches", "start_ns", "api_ns", "correlation_id"), read("kernels", "start_ns", "gpu_ns", "correlation_id")
    rows = [(start, took) for start, took, _ in launches]
    pairs = list(zip(noted[::3], noted[1::3]))
    assert len(rows) == len(pairs), f"{len(rows)} launches in the trace, {len(pairs)} made"
    off_ns = rows[0][0] - pairs[0][0]
    # Twice the middle of a call by either clock, in whole ns; a call that was interrupted says nothing of clocks.
    calls = [(before, (2 * (start - off_ns) + took - before - after) / 2, after - before - took) for (before, after), (start, took) in zip(pairs, rows)]
    first = calls[0][0]
    minutes = {}
    for before, off, slack in calls:
        minutes.setdefault((before - first) // 60_000_000_000, []).append((off, slack))
    # The quarter of them that the two readings lie closest around.
    minutes = {minute: sorted(values, key=lambda value: value[1])[:len(values) // 4 + 1] for minute, values in minutes.items()}
    base = statistics.median(off for off, _ in minutes[0])
    medians = {minute: statistics.median(off for off, _ in values) - base for minute, values in minutes.items()}
    for minute, values in minutes.items():
        print(f"minute {minute:3d}: median {medians[minute]:+7.0f} ns, {len(values)} calls, {min(off for off, _ in values) - base:+.0f} .. {max(off for off, _ in values) - base:+.0f}")
    offs = [(off - base, slack) for values in minutes.values() for off, slack in values]
    print(f"medians of {len(medians)} minutes: {min(medians.values()):+.0f} .. {max(medians.values()):+.0f} ns beside the first")
    print(f"single calls: {min(off for off, _ in offs):+.0f} .. {max(off for off, _ in offs):+.0f} ns; "
          f"beyond half of the time that the two readings took around the call: {sum(abs(off) > slack / 2 + 1000 for off, slack in offs)} by over 1 us")
    ran = {call: (start, start + took) for start, took, call in kernels if call is not None}
    delays = {}
    for (start, _, call), (before, _), end in zip(launches, pairs, noted[2::3]):
        if call in ran:
            delays.setdefault((before - first) // 60_000_000_000, []).append((ran[call][0] - start, end + off_ns - ran[call][1]))
    for minute, values in delays.items():
        begin, end = zip(*values)
        print(f"minute {minute:3d}: {len(values)} kernels began {statistics.median(begin):.0f} ns (least {min(begin)}) after their calls and ended {statistics.median(end):.0f} (least {min(end)}) before the wait did")
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
