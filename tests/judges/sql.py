"""DuckDB on the trace's Parquet files, beside our report on the same trace: sql.py TRACE REPORT."""

import sys

import duckdb
from compare import Comparison

trace, report = sys.argv[1:]
judged = Comparison(report)


def table(name):
    return f"read_parquet('{trace}/{name}/*/*.parquet', union_by_name=true)"


def one(query):
    return duckdb.execute(query).fetchone()


WORK = f"""
    SELECT start_ns AS a, start_ns + gpu_ns AS b, name LIKE 'nccl%' AS comm, false AS copy
    FROM {table('kernels')} k LEFT JOIN {table('names')} n USING (name_id)
    UNION ALL SELECT start_ns, start_ns + gpu_ns, false, true FROM {table('device_copies')}
"""


def islands(where):
    """Intervals without overlap: an island begins where all earlier ones have ended."""
    return f"""
        SELECT min(a) AS a, max(b) AS b FROM (
            SELECT a, b, sum(CASE WHEN a > before THEN 1 ELSE 0 END) OVER (ORDER BY a, b) AS island FROM (
                SELECT a, b, max(b) OVER (ORDER BY a, b ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                FROM ({WORK}) WHERE {where}))
        GROUP BY island
    """


def union_ns(where):
    return one(f"SELECT coalesce(sum(b - a), 0)::BIGINT FROM ({islands(where)})")[0]


compute, communication, busy = (union_ns(where) for where in ("NOT comm AND NOT copy", "comm", "true"))
kernels = union_ns("NOT copy")
range_ns = one(f"SELECT max(b) - min(a) FROM ({WORK})")[0]
gaps = one(f"""
    SELECT sum(gap)::BIGINT, count(*) FILTER (gap >= 1000)
    FROM (SELECT a - lag(b) OVER (ORDER BY a) AS gap FROM ({islands('true')}))
""")
judged.same("range", range_ns, judged.fact("gpu-utilisation", "range_ns"))
judged.same("busy", busy, judged.fact("gpu-utilisation", "busy_ns"))
judged.same("compute", compute, judged.fact("gpu-utilisation", "compute_ns"))
judged.same("NCCL in all", communication, judged.fact("gpu-utilisation", "communication_ns"))
judged.same("NCCL exposed", kernels - compute, judged.fact("gpu-utilisation", "communication_exposed_ns"))
judged.same("copies exposed", busy - kernels, judged.fact("gpu-utilisation", "copies_exposed_ns"))
judged.same("idle", gaps[0] or 0, judged.fact("gpu-gaps", "idle_ns"))
judged.same("gaps", gaps[1], judged.fact("gpu-gaps", "gaps"))

ours = {row["kernel"]: row for row in judged.rows("kernels", "by_kernel")}
query = f"""
    SELECT name, count(*), sum(gpu_ns)::BIGINT, min(gpu_ns), max(gpu_ns)
    FROM {table('kernels')} JOIN {table('names')} USING (name_id) GROUP BY name
"""
for name, count, total, least, most in duckdb.execute(query).fetchall():
    row = ours.get(name, {})
    values = [(count, "calls"), (total, "total_ns"), (least, "min_ns"), (most, "max_ns")]
    for value, column in values:
        judged.same(f"{name}: {column}", value, row.get(column))
ours = {row["api"]: row for row in judged.rows("launch-overhead", "by_api")}
query = f"""
    SELECT name, count(*), sum(api_ns)::BIGINT, min(api_ns), max(api_ns)
    FROM {table('launches')} JOIN {table('names')} n ON n.name_id = api_id GROUP BY name
"""
for name, *values in duckdb.execute(query).fetchall():
    row = ours.get(name, {})
    for value, column in zip(values, ["calls", "total_ns", "min_ns", "max_ns"]):
        judged.same(f"{name}: {column}", value, row.get(column))

judged.end(20)
