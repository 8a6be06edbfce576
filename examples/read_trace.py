#!/usr/bin/env python3
"""Reads a gputrace trace without gputrace: launches per API and per kernel.

    python3 examples/read_trace.py TRACE

Needs duckdb 2.0 or pyarrow (pip install duckdb, or pip install pyarrow), whichever is there. A trace is plain Parquet in
hive folders, so pandas, polars, Spark and every SQL engine read it in the same way; `gputrace schema` lists the columns.
Rows of a run that still goes on, or whose collector was killed, also stand in TRACE/journal; `gputrace report` reads
those too.
"""

import pathlib
import sys


def with_duckdb(trace):
    """(api, kernel, calls, total_ns, median_ns), most time first."""
    import duckdb

    def table(name):
        return f"read_parquet('{trace}/{name}/**/*.parquet', hive_partitioning=true)".replace("\\", "/")

    return duckdb.sql(f"""
        WITH n AS (SELECT DISTINCT name_id, name FROM {table("names")})
        SELECT a.name, k.name, count(*), sum(api_ns), median(api_ns)::BIGINT
        FROM {table("launches")} l
        JOIN n a ON a.name_id = l.api_id
        LEFT JOIN n k ON k.name_id = l.name_id
        GROUP BY ALL ORDER BY 4 DESC, 1, 2
    """).fetchall()


def with_pyarrow(trace):
    """The same as with_duckdb."""
    import statistics

    import pyarrow.dataset as ds

    def table(name, columns):
        return ds.dataset(trace / name, format="parquet", partitioning="hive").to_table(columns=columns)

    names = dict(zip(*table("names", ["name_id", "name"]).to_pydict().values()))
    calls = {}
    for batch in table("launches", ["api_id", "name_id", "api_ns"]).to_batches():
        for api_id, name_id, api_ns in zip(*(column.to_pylist() for column in batch.columns)):
            calls.setdefault((api_id, name_id), []).append(api_ns)
    rows = [
        (names.get(api, "?"), names.get(kernel), len(ns), sum(ns), round(statistics.median(ns)))
        for (api, kernel), ns in calls.items()
    ]
    return sorted(rows, key=lambda row: (-row[3], row[0], row[1] or ""))


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: read_trace.py TRACE")
    trace = pathlib.Path(sys.argv[1])
    if not (trace / "launches").is_dir():
        sys.exit(f"{trace}: no launches here; is it a trace, and did the program use CUDA?")
    for read in (with_duckdb, with_pyarrow):
        try:
            rows = read(trace)
            break
        except ImportError:
            continue
    else:
        sys.exit("neither duckdb nor pyarrow is installed: pip install duckdb")

    apis = {}
    for api, _, calls, total, _ in rows:
        before = apis.get(api, (0, 0))
        apis[api] = (before[0] + calls, before[1] + total)
    print(f"{'calls':>10} {'total ms':>10}  api")
    for api, (calls, total) in sorted(apis.items(), key=lambda item: -item[1][1]):
        print(f"{calls:>10} {total / 1e6:>10.3f}  {api}")
    print(f"\n{'calls':>10} {'total ms':>10} {'median us':>10}  kernel")
    for _, kernel, calls, total, median in rows[:30]:
        print(f"{calls:>10} {total / 1e6:>10.3f} {median / 1e3:>10.3f}  {kernel or '(graph or host function)'}")


if __name__ == "__main__":
    main()
