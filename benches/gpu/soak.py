"""Tens of millions of records of kernels in a CUDA graph: `python soak.py GPUTRACE FOLDER SECONDS [OPTION...]`.

A graph of a thousand tiny kernels is launched again and again under `gputrace OPTION...` (`--gpu-time full`). Every few
seconds: launches so far, how long one takes, memory of the device and of the process; at the end what the trace says.
"""

import json
import os
import subprocess
import sys
import time


def run(seconds):
    import torch

    x = torch.zeros(256, device="cuda")
    for _ in range(3):
        x.add_(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(1000):
            x.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    begin, launches, last = time.time(), 0, 0
    while (now := time.time()) < begin + seconds:
        for _ in range(50):
            graph.replay()
        torch.cuda.synchronize()
        launches += 50
        if now - last > 5:
            rss = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
            free, total = torch.cuda.mem_get_info()
            took = (time.time() - now) / 50 * 1e6
            print(f"  {now - begin:5.1f} s  {launches / 1e3:8.1f} M kernels  {took:7.1f} us a launch  device {(total - free) >> 20} MiB  process {rss >> 10} MiB", flush=True)
            last = now


def main():
    gputrace, folder, seconds, *options = sys.argv[1:]
    trace = os.path.join(folder, "soak")
    command = [gputrace, "-o", trace, *(options or ["--gpu-time", "full"]), "--", sys.executable, os.path.abspath(__file__), "run", seconds]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    print("exit", result.returncode, result.stderr[-1500:])
    manifest = json.load(open([os.path.join(trace, "manifest", f) for f in os.listdir(os.path.join(trace, "manifest"))][0]))
    print(json.dumps([p["gpu_time"] for p in manifest["processes"] if p.get("gpu_time")]))


if __name__ == "__main__":
    run(float(sys.argv[2])) if sys.argv[1] == "run" else main()
