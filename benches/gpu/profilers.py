"""Other profilers inside gputrace: `python profilers.py GPUTRACE FOLDER [jax,proton,proton-named,ncu,nsys]`.

Each profiles the same small program without gputrace and under `gputrace --gpu-time full`; what it found must be equal. Printed
is also what the trace says of who used CUPTI.
"""

import collections
import glob
import gzip
import importlib.util
import json
import os
import subprocess
import sys


def jax_program(out):
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(x):
        return jnp.tanh(x @ x) * 0.5

    x = jnp.ones((256, 256))
    step(x).block_until_ready()
    with jax.profiler.trace(out):
        for _ in range(50):
            x = step(x)
        x.block_until_ready()


def proton_program(out):
    import torch
    import triton.profiler as proton

    x = torch.randn(256, 256, device="cuda")
    torch.mm(x, x)
    torch.cuda.synchronize()
    proton.start(out, hook=None)
    for _ in range(50):
        torch.relu(torch.mm(x, x))
    torch.cuda.synchronize()
    proton.finalize()


def work_program(_):
    import torch

    x = torch.ones(256, device="cuda")
    for _ in range(5):
        x.add_(1)
    torch.cuda.synchronize()


def jax_found(out, _):
    events = []
    for file in glob.glob(os.path.join(out, "**", "*.trace.json.gz"), recursive=True):
        events += json.load(gzip.open(file))["traceEvents"]
    gpus = {e["pid"] for e in events if e.get("name") == "process_name" and "GPU" in e["args"]["name"]}
    return collections.Counter(e["name"] for e in events if e.get("ph") == "X" and e["pid"] in gpus)


def proton_found(out, _):
    found = collections.Counter()

    def walk(node):
        count = node.get("metrics", {}).get("count")
        if count:
            found[node["frame"]["name"][:60]] += int(count)
        for child in node.get("children", []):
            walk(child)

    for node in json.load(open(out + ".hatchet")):
        if "frame" in node:
            walk(node)
    return found


def nsys_found(out, _):
    """Its report cannot be read where it was measured; an empty one is a tenth of that."""
    return collections.Counter({"tens of kB": round(sum(os.path.getsize(file) for file in glob.glob(out + ".qdstrm") + glob.glob(out + ".nsys-rep")) / 1e4)})


def ncu_found(_, text):
    return collections.Counter(line.split(",")[4] for line in text.splitlines() if line.startswith('"') and "gpu__time_duration" in line)


NSYS = (glob.glob("/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys") or ["nsys"])[-1]


def protons_cupti():
    """Triton's own copy, which both are to use, as the trace's note names it."""
    folder = importlib.util.find_spec("triton").submodule_search_locations[0]
    return {"GPUTRACE_CUPTI": os.path.join(folder, "backends", "nvidia", "lib", "cupti", "libcupti.so")}


# What it profiles, what it found, what comes before the command, and what gputrace is told by the environment.
PROFILERS = {
    "jax": (jax_program, jax_found, lambda _: [], dict),
    "proton": (proton_program, proton_found, lambda _: [], dict),
    "proton-named": (proton_program, proton_found, lambda _: [], protons_cupti),
    "ncu": (work_program, ncu_found, lambda _: ["ncu", "--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--csv", "--target-processes", "all"], dict),
    "nsys": (work_program, nsys_found, lambda out: [NSYS, "profile", "--force-overwrite=true", "-t", "cuda", "-o", out], dict),
}


def main():
    gputrace, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    for name in sys.argv[3].split(",") if len(sys.argv) > 3 else PROFILERS:
        _, found, before, environment = PROFILERS[name]
        results, about = [], None
        for traced in (False, True):
            out = os.path.join(folder, f"{name}-{traced}")
            command = before(out) + [sys.executable, os.path.abspath(__file__), "run", name, out]
            if traced:
                command = [gputrace, "-o", out + ".trace", "--gpu-time", "full", "--malloc", "off", "--"] + command
            result = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, **(environment() if traced else {})})
            if result.returncode:
                print(f"{name}: exit {result.returncode}", result.stderr[-400:])
            try:
                results.append(found(out, result.stdout))
            except (OSError, KeyError, ValueError) as error:
                print(f"{name}: no result: {error!r}", result.stderr[-400:])
                results.append(None)
            if traced:
                manifest = json.load(open(glob.glob(out + ".trace/manifest/*")[0]))
                about = [(p["gpu_time"].get("aside"), p["gpu_time"]["records"], p["gpu_time"].get("refused")) for p in manifest["processes"] if p.get("gpu_time")]
        plain, traced = results
        equal = "EQUAL" if plain and plain == traced else "DIFFERENT"
        print(f"{name}: {equal}: {sum((plain or {}).values())} and {sum((traced or {}).values())}; others who used CUPTI, our records: {about}", flush=True)
        if plain != traced:
            print("   ", [(key, count, (traced or {}).get(key)) for key, count in (plain or {}).items() if (traced or {}).get(key) != count][:5])


if __name__ == "__main__":
    if sys.argv[1] == "run":
        PROFILERS[sys.argv[2]][0](sys.argv[3])
    else:
        main()
