"""Every question of examples/queries.sql to a trace, beside our report on it: queries.py TRACE REPORT QUERIES."""

import os
import re
import sys
import tempfile

import duckdb
from compare import Comparison

trace, report, queries = sys.argv[1:]
judged = Comparison(report)
connection = duckdb.connect()
connection.execute("SET VARIABLE trace = $1", [trace])
answers = []
with open(queries) as file:
    text = file.read()
    for statement in connection.extract_statements(text):
        result = connection.execute(statement)
        columns = [column[0] for column in result.description]
        answers.append([dict(zip(columns, row)) for row in result.fetchall()])
kernels, busy, gaps, launches, lines, copies, blocking, memory, ranges, ranks, malloc = answers[-11:]
for number, answer in enumerate(answers[-11:], 1):
    if not answer:
        judged.wrong.append(f"question {number} has no answer")


# What is cut says so.
for question in re.split(r"\n(?=-- \d+\. )", text)[1:]:
    said = " ".join(line for line in question.splitlines() if line.startswith("--"))
    for most in re.findall(r"LIMIT (\d+)", question):
        if f"the {most} " not in said:
            judged.wrong.append(f"not said that {most} rows are all: {said}")


def same(what, row, ours, columns):
    """Columns of both: theirs in ms or us, ours in ns; a float of ms is exact to far less than a ns."""
    for theirs, name in columns.items():
        factor = {"ms": 1e6, "us": 1e3}.get(theirs.rsplit("_", 1)[-1], 1)
        judged.same(f"{what}: {name}", row[theirs] * factor, (ours or {}).get(name), 0.01)


CALLS = {"calls": "calls", "total_ms": "total_ns", "min_us": "min_ns", "max_us": "max_ns"}
ours = {row["kernel"]: row for row in judged.rows("kernels", "by_kernel")}
for row in kernels:
    same(row["kernel"], row, ours.get(row["kernel"]), CALLS)
same("GPU", busy[0], judged.analyses["gpu-utilisation"]["facts"], {"busy_ms": "busy_ns", "range_ms": "range_ns"})
if not all(row["next"] for row in gaps):
    judged.wrong.append(f"a gap before nothing: {gaps}")
ours = {row["api"]: row for row in judged.rows("launch-overhead", "by_api")}
for row in launches:
    same(row["api"], row, ours.get(row["api"]), CALLS)
with_line = [row for row in lines if row["file"]]
waits = {(row["place"], row["api"]): row for row in judged.rows("syncs", "by_site")}
for row in with_line:
    what = f"{row['file']}:{row['line']}"
    same(what, row, waits.get((what, row["api"])), {"waits": "calls", "total_ms": "total_ns", "max_us": "max_ns"})
asked = "SELECT count(*) FROM rows_of('syncs') WHERE kind IN ('context', 'stream', 'event')"
pending = "SELECT count(*) FROM rows_of('transfers') WHERE pending_streams > 0"
every = sum(connection.execute(query).fetchone()[0] for query in (asked, pending))
judged.same("waits, with those that have no line", sum(row["waits"] for row in lines), every)
judged.same("waits that are nothing else", connection.execute(asked).fetchone()[0], judged.fact("syncs", "waits"))
judged.same("kernels, every row", len(kernels), len(judged.rows("kernels", "by_kernel")))
transfers = [row for row in judged.rows("transfers", "by_direction") if row["kind"] == "copy"]
for direction in {row["direction"] for row in copies}:
    theirs = [row for row in copies if row["direction"] == direction]
    mine = [row for row in transfers if row["direction"] == direction]
    judged.same(f"copies {direction}", sum(row["calls"] for row in theirs), sum(row["calls"] for row in mine))
pageable = [row for row in transfers if "pageable" in row["memory"]]
for theirs, name, factor in [("calls", "calls", 1), ("mb", "bytes", 1e6), ("api_ms", "total_ns", 1e6)]:
    sums = sum(row[theirs] for row in blocking) * factor, sum(row[name] for row in pageable)
    judged.same(f"pageable copies: {name}", *sums, 0.01)
peak = max(row["peak_mb"] for row in memory) * 1e6
judged.same("peak", peak, judged.fact("device-memory", "peak_bytes"), 0.01)
judged.same("ranges", sum(row["times"] for row in ranges), judged.fact("ranges", "ranges"))
nccl = [row for row in judged.rows("kernels", "by_kernel") if row["kernel"].startswith("nccl")]
given, live = (sum(row[column] for row in malloc) * 1e6 for column in ("mb", "live_mb"))
judged.same("malloc", given, judged.fact("host-memory", "allocated_bytes"), 0.01)
judged.same("malloc, live", live, judged.fact("host-leaks", "live_at_end_bytes"), 0.01)
judged.same("NCCL's kernels", ranks[0]["collectives"], sum(row["calls"] for row in nccl))

# A trace of kernels alone answers what needs no copies.
with tempfile.TemporaryDirectory() as part:
    for table in ("kernels", "names"):
        os.symlink(os.path.join(os.path.abspath(trace), table), os.path.join(part, table))
    connection.execute("SET VARIABLE trace = $1", [part])
    for number, statement in enumerate(connection.extract_statements(text)[-11:-8], 1):
        if not connection.execute(statement).fetchall():
            judged.wrong.append(f"question {number} has no answer without copies")

judged.end(27)
