#!/usr/bin/env python3
"""What ten scrapes a second cost gputrace: processor time of its process with and without them, in turns.

usage: benches/scrape.py GPUTRACE VICTIM DRIVERS [SECONDS]

GPUTRACE is the command; VICTIM tests/programs/victim.c, built; DRIVERS the folder with the simulated libcuda.so.1. Eight processes
launch a kernel every millisecond meanwhile. The connection is kept, as Prometheus keeps it. Prints the share of a processor of each turn, and the
medians' difference.
"""

import http.client
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

PROCESSES, TURNS, HZ = 8, 10, 10


def busy(pid):
    """Seconds of processors that the threads of a process have taken, by the scheduler's count of ns."""
    took = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as of:
            took += int(of.read().split()[0])
    return took / 1e9


class Scraper:
    """Asks for the metrics, and connects anew where the connection was ended."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address)

    def __call__(self):
        try:
            self.connection.request("GET", "/metrics")
            return self.connection.getresponse().read()
        except (http.client.HTTPException, ConnectionError):
            self.connection.close()
            return self()


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
            scrape = Scraper(re.search(r"http://([^/\s]+)", run.stderr.readline()).group(1))
            time.sleep(5)
            off, on, size = [], [], 0
            for _ in range(TURNS):
                off.append(turn(run.pid, seconds, None)[0])
                share, size = turn(run.pid, seconds, scrape)
                on.append(share)
            for name, all in (("without", off), ("with", on)):
                print(name, " ".join(f"{100 * share:.2f}" for share in all), "% of a processor")
            more = statistics.median(on) - statistics.median(off)
            print(f"{HZ} scrapes a second of {size} bytes: {100 * more:.2f} % more, {1e6 * more / HZ:.0f} us each")
        finally:
            os.killpg(run.pid, 15)
            run.wait()


main()
