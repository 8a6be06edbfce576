"""Asks a trace's manifests something for ci/on-a-mac: ask.py TRACE QUESTION [WORDS...].

Prints what was found; the exit code says whether it is what was wanted.
"""

import csv
import json
import pathlib
import sys


def processes(trace: pathlib.Path) -> list[dict]:
    manifests = sorted(trace.glob("manifest/*.json"))
    return [process for path in manifests for process in json.loads(path.read_text())["processes"] if process["traced"]]


def answer(trace: pathlib.Path, question: str, words: list[str]) -> tuple[str, bool]:
    traced = processes(trace)
    if question == "processes":
        wanted = int(words[0])
        return f"{len(traced)} processes", len(traced) >= wanted if wanted else not traced
    if question == "malloc":
        seen = sum(p["accounting"].get("host_alloc", {}).get("seen", 0) for p in traced)
        return f"{seen} calls", seen >= int(words[0])
    if question == "counters":
        manifests = [json.loads(path.read_text()) for path in sorted(trace.glob("manifest/*.json"))]
        sources = [source for manifest in manifests for source in (manifest.get("counters") or {}).get("sources", [])]
        rows = sum(source["rows"] for source in sources if source["name"] == "proc")
        return f"{rows} rows", rows >= int(words[0])
    if question == "exit_code":
        manifests = [json.loads(path.read_text()) for path in sorted(trace.glob("manifest/*.json"))]
        codes = [manifest["root"]["exit_code"] for manifest in manifests if manifest["root"]]
        return f"{codes}, {len(traced)} processes", codes == [int(words[0])] and bool(traced)
    if question == "hook":
        calls = [h["calls"] for p in traced for h in p["coverage"]["hooks"] if h["name"] == words[0]]
        wanted = int(words[1])
        exact = words[2:] == ["exactly"]
        return f"{sum(calls)} calls", sum(calls) == wanted if exact else sum(calls) >= wanted
    if question == "notes":
        notes = [note for p in traced for note in p.get("notes", []) if "MTL" in note or "Metal" in note]
        return "; ".join(notes) or f"none, {len(traced)} processes", bool(traced) and not notes
    if question == "says":
        text = pathlib.Path(words[0]).read_text()
        missing = [word for word in words[1:] if f'"{word}"' not in text]
        return f"missing: {missing}" if missing else "all", not missing
    if question == "filled":
        # Of an export as CSV: rows of a table that have something in a column.
        folder, table, column, wanted = words
        with open(pathlib.Path(folder, f"{table}.csv"), newline="") as file:
            filled = sum(row[column] != "" for row in csv.DictReader(file))
        return f"{filled} rows", filled == int(wanted)
    if question == "inside":
        # Times on the GPU begin after their commit, and the last one ends before its process does.
        folder = pathlib.Path(words[0])
        with open(folder / "processes.csv", newline="") as file:
            ends = [int(row["end_ns"]) for row in csv.DictReader(file) if row["end_ns"]]
        with open(folder / "command_buffers.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["gpu_ns"]]
        times = [(int(row["start_ns"]), int(row["gpu_start_ns"]), int(row["gpu_ns"])) for row in rows]
        inside = sum(commit <= begin and begin + took <= max(ends, default=0) for commit, begin, took in times)
        return f"{inside} of {len(times)}", bool(times) and inside == len(times)
    if question == "gpu_clock":
        # Pairs of host and GPU time were taken, and contradict no command buffer's time.
        clocks = [clock for p in traced for clock in p.get("gpu_clocks", [])]
        told = [
            f"GPU {c['device']}: {c['pairs']} pairs to {c['pair_error_ns']} ns, host's time: {c.get('runs_as_host')}, {c.get('drift_ppm')} ppm, "
            f"{c['corrected']} put right, {c['violations']} of {c['joined']} outside"
            for c in clocks
        ]
        right = bool(clocks) and all(c["pairs"] and c["joined"] and not c["violations"] for c in clocks)
        return "; ".join(told) or "none", right
    if question == "balanced":
        off = [p["pid"] for p in traced if not p["balanced"]]
        return (f"not balanced: {off}" if off else f"{len(traced)} processes balanced"), bool(traced) and not off
    if question == "gpu_times":
        text = pathlib.Path(words[0]).read_text()
        known = "no GPU times" not in text and '"gpu-utilisation"' in text
        files = list(trace.glob("kernels/**/*.parquet"))
        return f"{len(files)} files of kernels", known and bool(files)
    return f"{question} is no question", False


if __name__ == "__main__":
    found, right = answer(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
    print(found)
    sys.exit(not right)
