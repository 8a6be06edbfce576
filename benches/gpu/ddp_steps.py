"""Steps of data-parallel training with and without gputrace: `python ddp_steps.py GPUTRACE FOLDER [STEPS [TURNS]]`.

torchrun trains layers of 4096 with DistributedDataParallel on all GPUs, plain, traced and with `--gpu-time auto`, in turn. Of
rank 0's steps the median, 99th percentile and longest, of each run and of all.
"""

import json
import os
import statistics
import subprocess
import sys
import time

WAYS = {"plain": None, "gputrace": [], "auto": ["--gpu-time", "auto"]}


def prepared():
    """A step of this rank, after twenty of them."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(4096, 4096), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device).bfloat16(), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(20):
        step()
    return step


def launcher():
    """What comes before a program of one process for each GPU."""
    gpus = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True).stdout.count("GPU ")
    return ["torchrun", "--nproc-per-node", str(gpus)]


def run(steps, out):
    import torch.distributed as dist

    step, times = prepared(), []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(1000 * (time.perf_counter() - begin))
    if int(os.environ["RANK"]) == 0:
        with open(out, "w") as file:
            json.dump(times, file)
    dist.destroy_process_group()


def tail(times):
    times = sorted(times)
    return statistics.median(times), times[int(len(times) * 0.99)], times[-1]


def main():
    gputrace, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    steps, turns = int((sys.argv[3:] + ["600"])[0]), int((sys.argv[4:] + ["4"])[0])
    os.makedirs(folder, exist_ok=True)
    found = {way: [] for way in WAYS}
    for turn in range(turns):
        for way in list(WAYS) if turn % 2 == 0 else reversed(list(WAYS)):
            trace = os.path.join(folder, f"ddp-{way}-{turn}")
            command = [*launcher(), os.path.abspath(__file__), "run", str(steps), trace + ".json"]
            if WAYS[way] is not None:
                command = [gputrace, "-o", trace, *WAYS[way], "--"] + command
            with open(trace + ".err", "w") as err:
                subprocess.run(command, check=True, stdout=err, stderr=err)
            found[way].append(json.load(open(trace + ".json")))
    plain = tail([time for run in found["plain"] for time in run])
    for way, runs in found.items():
        p50, p99, longest = tail([time for run in runs for time in run])
        print(f"{way:9} {steps} steps, {turns} runs: p50 {p50:.3f} ms ({100 * (p50 / plain[0] - 1):+.2f} %)  p99 {p99:.3f} ({100 * (p99 / plain[1] - 1):+.2f} %)  "
              f"longest {longest:.2f} ({longest - plain[2]:+.2f} ms)  medians {[round(statistics.median(run), 3) for run in runs]}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(int(sys.argv[2]), sys.argv[3])
    else:
        main()
