#!/usr/bin/env python3
"""What the sums of all events take: bytes an hour of a steady trainer, and the collector's time for an event.

    cargo build --release && benches/rollups.py [--seconds 150] [--kernels 150]

The trainer makes 100,000 calls a second on the simulated driver. The time for an event is that of the collector's threads, with sums and
without, in turns, while the trainer goes as fast as it can.
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target/release"


def build(folder):
    driver = folder / "libcuda.so.1"
    driver.symlink_to(RELEASE / "libfake_cuda.so")
    program = folder / "steady"
    subprocess.run(
        ["cc", "-O2", "-I", ROOT / "tests/programs", ROOT / "benches/programs/steady.c", "-o", program]
        + ["-L", folder, "-l:libcuda.so.1", f"-Wl,-rpath,{folder}"],
        check=True,
    )
    return program


def traced(program, trace, words, *options):
    """Calls made, and processor time of gputrace and the program, s."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [RELEASE / "gputrace", "-o", trace, "--malloc", "off", "--max-size", "64M", *options, "--", program, *words]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int(out.split()[0]), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def size(folder):
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=150)
    parser.add_argument("--kernels", type=int, default=150)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        program = build(folder)
        words = [str(asked.kernels), str(asked.seconds), "100000"]
        calls, _ = traced(program, folder / "steady-trace", words)
        hour = 3600 / asked.seconds
        sizes = {table: size(folder / "steady-trace" / table) * hour / 1e6 for table in ("rollups", "rollup_names")}
        print(f"{calls / asked.seconds:,.0f} calls a second of {asked.kernels} kernels")
        print("MB an hour:", ", ".join(f"{table} {mb:.2f}" for table, mb in sizes.items()), f"in all {sum(sizes.values()):.2f}")
        costs = []
        for turn in range(5):
            ns = {}
            for period in ("off", "1"):
                calls, seconds = traced(program, folder / f"{turn}-{period}", [str(asked.kernels), "3", "0"], "--rollup", period)
                ns[period] = (seconds - 3) / calls * 1e9
            costs.append(ns["1"] - ns["off"])
            print(f"turn {turn}: collector {ns['off']:.0f} ns an event without sums, {ns['1']:.0f} with")
        print(f"median of the difference: {statistics.median(costs):.0f} ns an event")


if __name__ == "__main__":
    os.environ.pop("GPUTRACE", None)
    main()
