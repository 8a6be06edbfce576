"""Holistic Trace Analysis on two folders that should hold the same profile: same_profile.py WAS IS.

Every event with what it reads of it, and its iteration, which the tool finds by the steps; then what it finds by that. Ours has more
columns than the original where it has something to say of its own, so events are compared by the columns below.
"""

import os
import sys

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"

import logging

logging.disable(logging.WARNING)

from hta.common.trace import parse_trace_file
from hta.configs.parser_config import ParserConfig
from hta.trace_analysis import TraceAnalysis

COLUMNS = [
    "name", "pid", "tid", "dur", "stream", "correlation", "external_id", "wait_on_stream",
    "wait_on_cuda_event_record_corr_id", "iteration", "at",
]


def events(folder):
    meta, df, symbols = parse_trace_file(os.path.join(folder, "rank0.json"), ParserConfig.get_default_cfg())
    names = symbols.get_sym_table()
    df["cat"], df["name"] = [names[n] for n in df["cat"]], [names[n] for n in df["name"]]
    df["at"] = ((df["ts"] - df["ts"].min()) * 1000).round().astype(int)
    rows = df[["cat"] + COLUMNS].itertuples(index=False)
    return sorted(tuple(str(value) for value in row) for row in rows)


was, is_ = (events(folder) for folder in sys.argv[1:3])
differ = [(a, b) for a, b in zip(was, is_) if a != b] + ([("rows", len(was), len(is_))] if len(was) != len(is_) else [])
iterations = {row[-2] for row in was} - {"-1"}

found = []
for folder in sys.argv[1:3]:
    hta = TraceAnalysis(trace_dir=folder)
    found.append([
        hta.get_gpu_user_annotation_breakdown(visualize=False).drop(columns=["rank"]).round(3).to_dict("records"),
        hta.get_temporal_breakdown(visualize=False).round(3).to_dict("records"),
    ])
differ += [pair for pair in zip(*found) if pair[0] != pair[1]]
for pair in differ:
    print("differ:", *pair, sep="\n  ")
print(f"{len(was)} events, {len(iterations)} iterations, {len(differ)} differ")
sys.exit(0 if not differ and len(was) > 30 and len(iterations) == 3 else 1)
