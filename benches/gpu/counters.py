"""Counters of a GPU under three loads: `python counters.py GPUTRACE FOLDER [SECONDS]`.

A bf16 matrix product, a copy on the device and a stream of tiny kernels run for some seconds each under `gputrace --counters 10`
(the shim's own recording apart); for each the medians of GPM and NVML, the limit that the report tells, and the processor time
that the collector's readings took are printed. Then the same with `--cpu-counters on` and at the usual rate, for their cost.
"""

import json
import os
import subprocess
import sys
import time


def matmul(torch):
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)

    def work():
        for _ in range(8):
            torch.mm(a, a, out=out)
        torch.cuda.synchronize()

    return work


def copy(torch):
    a = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    b = torch.empty_like(a)

    def work():
        for _ in range(16):
            b.copy_(a)
        torch.cuda.synchronize()

    return work


def tiny(torch):
    x = torch.zeros(64, device="cuda")

    def work():
        for _ in range(2000):
            x.add_(1)
        torch.cuda.synchronize()

    return work


LOADS = {"matmul": matmul, "copy": copy, "tiny": tiny}
SHOWN = {
    "gpm": ["graphics_util", "sm_util", "sm_occupancy", "any_tensor_util", "dram_bw_util", "fp32_util", "pcie_tx", "nvlink_tx"],
    "nvml": ["gpu_utilization", "power", "temperature", "sm_clock", "memory_used", "clocks_event_reasons", "pcie_link_gen", "compute_processes"],
    "proc": ["cpu_user", "cpu_system", "rss"],
    "perf": ["instructions", "task_clock"],
}


def run(name, seconds):
    import torch

    work = LOADS[name](torch)
    work()
    end = time.perf_counter() + float(seconds)
    while time.perf_counter() < end:
        work()


def traced(name, seconds, options):
    trace = os.path.join(FOLDER, "-".join(["counters", name] + [o.strip("-") for o in options]))
    command = [GPUTRACE, "-o", trace, "--malloc", "off", *options, "--", sys.executable, os.path.abspath(__file__), "run", name, str(seconds)]
    began = time.perf_counter()
    subprocess.run(command, check=True, stderr=open(trace + ".err", "w"))
    took = time.perf_counter() - began
    (manifest,) = [json.load(open(os.path.join(trace, "manifest", file))) for file in os.listdir(os.path.join(trace, "manifest"))]
    report = subprocess.run([GPUTRACE, "report", trace, "--only", "counters,node-health", "--format", "json"], check=True, capture_output=True, text=True)
    return manifest["counters"], json.loads(report.stdout)["analyses"], took


def tables(analysis):
    return {name: table["rows"] for name, table in analysis["tables"].items()}


def cost(about, took):
    each = about["cpu_ns"] / max(about["readings"], 1) / 1000
    return f"{about['readings']} readings, {each:.0f} us of a processor each, {100 * about['cpu_ns'] / 1e9 / took:.3f} % of one"


def main(seconds):
    os.makedirs(FOLDER, exist_ok=True)
    for name in LOADS:
        about, analyses, took = traced(name, seconds, ["--counters", "10"])
        found = tables(analyses["counters"])
        print(f"{name}: {[row['bound'] for row in found.get('bounds', [])]}; {cost(about, took)}")
        for source, names in SHOWN.items():
            values = {row["name"]: f"{row['median']:.4g} {row['unit'] or ''}".strip() for row in found.get("counters", []) if row["source"] == source}
            print(f"   {source:5}", "  ".join(f"{n} {values[n]}" for n in names if n in values) or "nothing")
        for source in about["sources"]:
            for missing in source.get("missing", []):
                print(f"   not read: {source['name']}: {missing}")
        for row in tables(analyses["node-health"]).get("checks", []):
            print(f"   {row['check']}: {row['result']} {row['measured'] or ''}")
    for options in (["--counters", "1"], ["--counters", "10", "--cpu-counters", "on"]):
        about, analyses, took = traced("tiny", seconds, options)
        print(f"tiny {' '.join(options)}: {cost(about, took)}")
        for source in about["sources"]:
            print(f"   {source['name']}: {source['rows']} rows {source.get('missing', '')}")


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:4])
    else:
        GPUTRACE, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
        main(sys.argv[3] if len(sys.argv) > 3 else 8)
