"""Holistic Trace Analysis' sequences of kernels beside ours: sequences.py FOLDER REPORT OPERATOR... (those of one depth)."""

import logging
import os
import sys
import tempfile

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(logging.WARNING)

import pandas
from compare import Comparison
from hta.trace_analysis import TraceAnalysis

# It replaces texts by numbers and goes on with these as numbers, which pandas 3 no longer makes of them by itself.
replaced = pandas.DataFrame.replace
pandas.DataFrame.replace = lambda self, *args, **more: (
    None if (made := replaced(self, *args, **more)) is None else made.infer_objects()
)

folder, report, *operators = sys.argv[1:]
hta = TraceAnalysis(trace_dir=folder)
judged = Comparison(report)
ours = judged.rows("kernel-sequences", "sequences")
for operator in operators:
    with tempfile.TemporaryDirectory() as out:
        theirs = hta.get_frequent_cuda_kernel_sequences(operator_name=operator, output_dir=out, min_pattern_len=3, rank=0, visualize=False)
    own = {f"{row['range']}|{row['sequence']}": row for row in ours if row["range"] == operator}
    judged.same(f"{operator}: sequences", len(theirs), len(own))
    for _, row in theirs.iterrows():
        mine = own.get(row["pattern"], {})
        judged.same(f"{row['pattern']}: count", row["count"], mine.get("count"))
        judged.same(f"{row['pattern']}: GPU", round(row["GPU kernel duration (us)"] * 1000), mine.get("gpu_ns"))
        judged.same(f"{row['pattern']}: host", round(row["CPU op duration (us)"] * 1000), mine.get("host_ns"))
judged.end(4 * len(operators) + 6)
