"""Fills an SQLite database in memory, indexes it, reads it back and changes it: `python3 sqlite_rows.py ROWS`."""

import sqlite3
import sys

rows = int(sys.argv[1])
base = sqlite3.connect(":memory:")
base.execute("create table t (id integer primary key, a integer, b text)")
base.executemany("insert into t (a, b) values (?, ?)", ((n * 7919 % rows, f"row {n} of {rows}") for n in range(rows)))
base.execute("create index i on t (a)")
for n in range(0, rows, 3):
    base.execute("select b from t where a = ?", (n,)).fetchall()
base.execute("update t set b = b || '!' where a % 2")
base.execute("select b, count(*) from t group by substr(b, 1, 6) order by 2").fetchall()
