"""A GPT-style training loop that reads its loss with .item(), for the question whose line waits.

    waits.py run OUT.json STEPS   runs under gputrace, profiled by torch.profiler; writes the profiler's total of waiting calls
    waits.py compare TRACE OUT.json   the line that the trace names and its total, beside the profiler's

The profiler's calls enclose the driver's, so its total is a little larger; they are to agree within 3 %.
"""

import glob
import json
import sys

WAITS = ("cudaStreamSynchronize", "cuStreamSynchronize")
MARK = "loss.item()  # the line that waits"


def run(path, steps):
    import torch
    import torch.nn as nn

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda()
    head = nn.Linear(768, 8192).cuda()
    tokens = torch.randn(8, 256, 768, device="cuda")
    targets = torch.randint(0, 8192, (8 * 256,), device="cuda")
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-4, fused=True)
    total = 0.0

    def step():
        nonlocal total
        loss = nn.functional.cross_entropy(head(model(tokens)).flatten(0, 1), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item()  # the line that waits

    import ctypes
    shim = ctypes.CDLL(None)
    shim.gputrace_pause()  # the profiler does not see the warm-up either
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profile:
        shim.gputrace_resume()
        for _ in range(steps):
            step()
        shim.gputrace_pause()
    waits = {}
    for event in profile.events():
        if event.name in WAITS:
            count, spent = waits.get(event.name, (0, 0.0))
            waits[event.name] = (count + 1, spent + event.time_range.elapsed_us())
    with open(path, "w") as file:
        json.dump({"waits": waits, "steps": steps}, file)


def rows(trace, name):
    import pyarrow.parquet as parquet
    for path in glob.glob(f"{trace}/{name}/**/*.parquet", recursive=True):
        yield from parquet.ParquetFile(path).read().to_pylist()


def compare(trace, path):
    with open(__file__) as file:
        line = next(n for n, text in enumerate(file, 1) if MARK in text and "MARK" not in text)
    # A row is the innermost frame of a stack; who called it is another row. Stacks of calls have no outer_id.
    told = {row["stack_id"]: row for row in rows(trace, "stacks")}

    def is_of_line(stack):
        while row := told.get(stack):
            if row["file"] and row["file"].endswith("waits.py") and row["line"] == line:
                return True
            stack = row["caller_id"]
        return False

    with open(path) as file:
        theirs = json.load(file)
    ours, count = 0, 0
    for row in rows(trace, "syncs"):
        if is_of_line(row.get("stack_id")):
            ours, count = ours + row["api_ns"] / 1e3, count + 1
    # What the profiler counts of these names lies in that line alone: nothing else in a step waits.
    total = sum(spent for _, spent in theirs["waits"].values())
    difference = 100 * (ours - total) / total
    verdict = "AGREES" if abs(difference) <= 3 and count else "DISAGREES"
    print(f"waits: {verdict}  waits.py:{line} {count} calls {ours / 1e3:.2f} ms; torch.profiler {total / 1e3:.2f} ms "
          f"in {theirs['waits']} ({difference:+.2f} %)", flush=True)
    return verdict != "AGREES"


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(compare(*sys.argv[2:4]))
