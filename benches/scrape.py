#!/usr/bin/env python3
"""What ten scrapes a second cost gputrace: processor time of its process with and without them, in turns.

usage: benches/scrape.py GPUTRACE VICTIM DRIVERS [SECONDS]

GPUTRACE is the command; VICTIM tests/programs/victim.c, built; DRIVERS the folder with the simulated libcuda.so.1. Eight processes
launch a kernel every millisecond meanwhile. Prints the share of a processor of each turn, and the medians' difference.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

PROCESSES, TURNS, HZ = 8, 10, 10


def busy(pid):
    """Seconds of processors that a process has taken, all its threads."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def turn(pid, seconds, scrape):
    """The share of a processor over so many seconds, and the bytes of a scrape."""
    before, began, size = busy(pid), time.monotonic(), 0
    for n in range(int(seconds * HZ)):
        if scrape:
            size = len(scrape())
        time.sleep(max(0, began + (n + 1) / HZ - time.monotonic()))
    return (busy(pid) - before) / (time.monotonic() - began), size


def main():
    gputrace, victim, drivers = sys.argv[1:4]
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 10
    with tempfile.TemporaryDirectory() as folder:
        launches = int((2 * TURNS * seconds + 20) * 1000)
        one = f"{victim} {folder}/count$i {launches} 1000 > /dev/null &"
        script = f"for i in $(seq {PROCESSES}); do {one} done; wait"
        command = [gputrace, "--metrics", "0", "-o", f"{folder}/trace", "--", "/bin/sh", "-c", script]
        environment = dict(os.environ, LD_LIBRARY_PATH=drivers, FAKE_CUDA_INSTANT="1")
        run = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            url = re.search(r"http://\S+", run.stderr.readline()).group()
            time.sleep(5)
            off, on, size = [], [], 0
            for _ in range(TURNS):
                off.append(turn(run.pid, seconds, None)[0])
                share, size = turn(run.pid, seconds, lambda: urllib.request.urlopen(url).read())
                on.append(share)
            for name, all in (("without", off), ("with", on)):
                print(name, " ".join(f"{100 * share:.2f}" for share in all), "% of a processor")
            more = statistics.median(on) - statistics.median(off)
            print(f"{HZ} scrapes a second of {size} bytes: {100 * more:.2f} % more, {1e6 * more / HZ:.0f} us each")
        finally:
            os.killpg(run.pid, 15)
            run.wait()


main()
