"""Ranges that PyTorch, the nvtx package and NCCL name, against what the trace holds of them.

    ranges.py run OUT.json             names ranges in every way and writes how many of each
    ranges.py compare TRACE OUT.json   prints both counts by domain and name; exits 1 when one differs

Where the nvtx package or NCCL is not there, their part is left out, and the file says so.
"""

import collections
import glob
import json
import os
import sys
import threading

DEFAULT = "-"


def with_torch(done, torch):
    data = torch.randn(512, 512, device="cuda")
    for step in range(20):
        torch.cuda.nvtx.range_push("step")
        torch.cuda.nvtx.range_push(f"forward {step % 4}")
        data = torch.tanh(data @ data)
        torch.cuda.nvtx.range_pop()
        with torch.cuda.nvtx.range("a range of PyTorch, {} of {}", step % 2, 2):
            torch.cuda.nvtx.mark("a mark of PyTorch")
        torch.cuda.nvtx.range_pop()
        done[DEFAULT, "step"] += 1
        done[DEFAULT, f"forward {step % 4}"] += 1
        done[DEFAULT, f"a range of PyTorch, {step % 2} of 2"] += 1
        done[DEFAULT, "a mark of PyTorch"] += 1
    ids = [torch.cuda.nvtx.range_start("started here, ended there") for _ in range(10)]
    thread = threading.Thread(target=lambda: [torch.cuda.nvtx.range_end(number) for number in ids])
    thread.start()
    thread.join()
    done[DEFAULT, "started here, ended there"] += 10
    with torch.autograd.profiler.emit_nvtx():
        for step in range(10):
            with torch.profiler.record_function(f"ProfilerStep#{step}"):
                torch.relu(data)
    done[DEFAULT, "ProfilerStep#..."] += 10
    torch.cuda.synchronize()


def with_the_package(done):
    import nvtx

    @nvtx.annotate("annotated", color="blue", domain="package", category="functions", payload=7)
    def work():
        pass

    for _ in range(100):
        work()
    done["package", "annotated"] += 100
    domain = nvtx.get_domain("fast")
    said = domain.get_event_attributes(message="registered", color="orange", category="loop", payload=2.5)
    for _ in range(1000):
        domain.push_range(said)
        domain.pop_range()
    done["fast", "registered"] += 1000
    nvtx.mark("marked", domain="package")
    done["package", "marked"] += 1


def with_nccl(done, torch):
    import torch.distributed as dist

    for name, value in dict(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1").items():
        os.environ.setdefault(name, value)
    dist.init_process_group("nccl")
    data = torch.ones(1 << 20, device="cuda")
    ranks = dist.get_world_size()
    for _ in range(25):
        dist.all_reduce(data)
        dist.all_gather_into_tensor(torch.empty(ranks << 20, device="cuda"), data)
    torch.cuda.synchronize()
    done["NCCL", "ncclAllReduce"] += 25
    done["NCCL", "ncclAllGather"] += 25
    dist.destroy_process_group()


def run(out):
    import torch

    done, absent = collections.Counter(), []
    with_torch(done, torch)
    for name, part in [("nvtx", with_the_package), ("NCCL", lambda done: with_nccl(done, torch))]:
        try:
            part(done)
        except (ImportError, RuntimeError, ValueError) as error:
            absent.append(f"{name}: {error}")
    with open(out, "w") as file:
        json.dump(dict(done=[[*key, count] for key, count in done.items()], absent=absent), file, indent=1)


def compare(trace, out):
    import pyarrow.parquet as parquet

    def table(name):
        paths = glob.glob(f"{trace}/{name}/**/*.parquet", recursive=True)
        return [row for path in paths for row in parquet.ParquetFile(path).read().to_pylist()]

    with open(out) as file:
        wanted = json.load(file)
    names = {row["name_id"]: row["name"] for row in table("names")}
    found, open_ranges = collections.Counter(), 0
    for row in table("ranges"):
        name = names.get(row["name_id"], "?")
        if name.startswith("ProfilerStep#"):
            name = "ProfilerStep#..."
        found[names.get(row["domain_id"], DEFAULT), name] += 1
        open_ranges += row["end_ns"] is None
    differ = 0
    for domain, name, count in wanted["done"]:
        ours = found.pop((domain, name), 0)
        differ += ours != count
        print(f"    {'ok' if ours == count else 'DIFFERS':8} {domain:10} {name:30} done {count:6}  in the trace {ours:6}")
    others = sum(found.values())
    print(f"    {others} more ranges of {len(found)} names that libraries name; {open_ranges} ranges without an end")
    for (domain, name), count in found.most_common(8):
        print(f"      {domain:10} {name[:50]:50} {count:6}")
    for text in wanted["absent"]:
        print("    left out:", text)
    return int(differ > 0)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2])
    else:
        sys.exit(compare(sys.argv[2], sys.argv[3]))
