"""Steps with and without gputrace, their tails too: `python tails.py GPUTRACE FOLDER [PROGRAM:STEPS:WAY,...]`.

A run without gputrace and one with it (WAY: gputrace, bare, auto, full) go on at the same time, each on a GPU and a half of the
processors of its own, then once more with the halves changed, so that what disturbs the host disturbs both alike. With one
GPU they take turns. Programs: transformer (launch bound), generate (a token at a time, GPT-2's size with a cache of keys and values), gemms.
Per run the median; of all steps the median, 99th percentile and longest, plain and traced.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import gpu_time

WAYS = {"gputrace": [], "bare": ["--malloc", "off"], "auto": ["--gpu-time", "auto"], "full": ["--gpu-time", "full"]}
FIRST = "transformer:5000:bare,transformer:5000:gputrace,transformer:5000:auto,generate:2000:gputrace,generate:2000:auto"


def generate():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).cuda().bfloat16().eval()
    state = {"cache": None, "token": torch.full((1, 1), 7, device="cuda"), "length": 0}

    @torch.no_grad()
    def step():
        if state["length"] % 400 == 0:
            state["cache"] = None
        out = model(state["token"], past_key_values=state["cache"], use_cache=True)
        state["cache"], state["length"] = out.past_key_values, state["length"] + 1
        state["token"] = out.logits[:, -1].argmax(-1, keepdim=True)
        return state["token"].item()

    return step


PROGRAMS = {**gpu_time.PROGRAMS, "generate": generate}


def run(name, steps, out):
    import torch

    step = PROGRAMS[name]()
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(int(steps)):
        begin = time.perf_counter()
        step()
        times.append(1000 * (time.perf_counter() - begin))
    torch.cuda.synchronize()
    with open(out, "w") as file:
        json.dump(times, file)


def started(name, steps, way, trace, half, halves):
    """A run that goes on, and where its times will be."""
    out = trace + ".json"
    command = [sys.executable, os.path.abspath(__file__), "run", name, str(steps), out]
    if way is not None:
        command = [GPUTRACE, "-o", trace, *WAYS[way], "--"] + command
    processors = sorted(os.sched_getaffinity(0))
    own = processors[half * len(processors) // halves:(half + 1) * len(processors) // halves]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(half)}
    err = open(trace + ".err", "w")
    return subprocess.Popen(command, env=environment, stdout=err, stderr=err, preexec_fn=lambda: os.sched_setaffinity(0, own)), out


def times_of(runs):
    for running, _ in runs:
        if running.wait():
            print("  exit", running.returncode)
    return [json.load(open(out)) for _, out in runs]


def tail(times):
    times = sorted(times)
    return statistics.median(times), times[int(len(times) * 0.99)], times[-1]


def compare(name, steps, way, halves):
    plain, traced, middles = [], [], []
    for turn in range(2):
        base = os.path.join(FOLDER, f"{name}-{way}-{turn}")
        pair = [(None, base + "-plain"), (way, base + "-traced")]
        places = [turn, 1 - turn] if halves == 2 else [0, 0]
        if halves == 2:
            found = times_of([started(name, steps, how, trace, place, 2) for (how, trace), place in zip(pair, places)])
        else:
            found = [times_of([started(name, steps, how, trace, 0, 1)])[0] for how, trace in pair]
        plain, traced = plain + found[0], traced + found[1]
        middles.append([round(statistics.median(times), 3) for times in found])
    (p50, p99, worst), (t50, t99, longest) = tail(plain), tail(traced)
    print(f"{name} {way}, {len(plain)} steps each: p50 {p50:.3f} {t50:.3f} ms ({100 * (t50 / p50 - 1):+.2f} %)  p99 {p99:.3f} {t99:.3f} "
          f"({100 * (t99 / p99 - 1):+.2f} %)  longest {worst:.2f} {longest:.2f} ({longest - worst:+.2f} ms)  medians by turn {middles}", flush=True)
    lines = [line for line in open(os.path.join(FOLDER, f"{name}-{way}-1-traced.err")) if "budget" in line or "lost" in line or "dropped" in line or "cost" in line]
    print("".join("    " + line for line in lines[:6]), end="", flush=True)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    count = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True).stdout.count("GPU ")
    for item in (sys.argv[3] if len(sys.argv) > 3 else FIRST).split(","):
        name, steps, way = item.split(":")
        compare(name, int(steps), way, min(count, 2))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:5])
    else:
        GPUTRACE, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
        main()
