"""Reads exported tables with programs that are not ours, and prints what they hold as JSON: `sqlite FILE`, `csv FOLDER`, `arrow FOLDER`.

Of a database: what queries in the manner of Nsight Systems' users find. Of a folder: rows, and for each column how many are null and the
sum of the others (of texts, of their lengths)."""

import csv
import json
import pathlib
import sqlite3
import sys

QUERIES = {
    "calls": """SELECT s.value, count(*), sum(r.end - r.start), min(r.start), sum(r.returnValue), min(r.globalTid >> 24 & 0xffffff),
        min(c.name) FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId
        JOIN ENUM_NSYS_EVENT_CLASS c ON c.id = r.eventClass GROUP BY 1""",
    "kernels": """SELECT s.value, n.value, count(*), sum(k.end - k.start), sum(k.gridX * k.blockX) FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN StringIds s ON s.id = k.demangledName JOIN StringIds n ON n.id = k.shortName GROUP BY 1, 2""",
    "launched": """SELECT count(*), sum(r.start <= k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
        ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24""",
    "on devices": """SELECT g.name, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN TARGET_INFO_GPU g ON g.id = k.deviceId GROUP BY 1""",
    "copies": """SELECT e.label, count(*), sum(m.bytes), sum(m.end - m.start) FROM CUPTI_ACTIVITY_KIND_MEMCPY m
        JOIN ENUM_CUDA_MEMCPY_OPER e ON e.id = m.copyKind GROUP BY 1""",
    "sets": "SELECT count(*), sum(bytes), sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMSET",
    "waited": """SELECT e.label, count(*), sum(y.end - y.start) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION y
        JOIN ENUM_CUPTI_SYNC_TYPE e ON e.id = y.syncType GROUP BY 1""",
    "memory": """SELECT e.label, count(*), sum(m.bytes) FROM CUDA_GPU_MEMORY_USAGE_EVENTS m
        JOIN ENUM_CUDA_DEV_MEM_EVENT_OPER e ON e.id = m.memoryOperationType GROUP BY 1""",
    "ranges": """SELECT coalesce(d.text, ''), coalesce(s.value, n.text, ''), t.name, count(*), sum(n.end - n.start) FROM NVTX_EVENTS n
        JOIN ENUM_NSYS_EVENT_TYPE t ON t.id = n.eventType LEFT JOIN StringIds s ON s.id = n.textId
        LEFT JOIN NVTX_EVENTS d ON d.eventType = 75 AND d.domainId = n.domainId AND d.globalTid >> 24 = n.globalTid >> 24
        WHERE n.eventType IN (34, 59, 60) GROUP BY 1, 2, 3""",
    "told": """SELECT n.text, n.category, n.color, n.int64Value, n.end IS NULL, n.rangeId IS NULL, c.text FROM NVTX_EVENTS n
        LEFT JOIN NVTX_EVENTS c ON c.eventType = 33 AND c.category = n.category AND c.domainId = n.domainId
        AND c.globalTid >> 24 = n.globalTid >> 24 WHERE n.eventType IN (34, 59, 60) ORDER BY n.rowid""",
    "waits": "SELECT s.value, count(*), sum(o.end - o.start) FROM OSRT_API o JOIN StringIds s ON s.id = o.nameId GROUP BY 1",
    "stacks": """SELECT n.value, s.value FROM CUDA_CALLCHAINS c JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.callchainId = c.id
        JOIN StringIds n ON n.id = r.nameId JOIN StringIds s ON s.id = c.symbol WHERE c.stackDepth = 0 ORDER BY 1""",
    "processes": "SELECT p.pid, p.globalPid >> 24 & 0xffffff, p.name FROM PROCESSES p",
    "threads": "SELECT t.globalTid & 0xffffff, s.value FROM ThreadNames t JOIN StringIds s ON s.id = t.nameId",
    "began": "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME",
    "product": "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PRODUCT_NAME'",
}


def database(path):
    base = sqlite3.connect(path)
    assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    # A table is there when it has rows, and a query about one that is not finds nothing.
    present = {what: query for what, query in QUERIES.items() if query.split(" FROM ")[1].split()[0] in tables}
    return {what: base.execute(query).fetchall() for what, query in present.items()}


def number(text):
    return {"true": 1, "false": 0}.get(text) if text in ("true", "false") else float(text) if "." in text else int(text)


def summed(values):
    known = [value for value in values if value is not None]
    total = 0
    for value in known:
        total += len(value.encode()) if isinstance(value, str) else value
    return {"null": len(values) - len(known), "sum": str(total)}


def comma_separated(path):
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file, strict=True)
    assert all(len(row) == len(header) for row in rows), path
    columns = {}
    for at, name in enumerate(header):
        texts = [row[at] for row in rows]
        try:
            columns[name] = [number(text) if text else None for text in texts]
        except ValueError:
            columns[name] = texts
    return len(rows), columns


def arrow(path):
    import pyarrow

    with pyarrow.memory_map(str(path)) as file:
        table = pyarrow.ipc.open_file(file).read_all()
        return table.num_rows, {name: [None if v is None else int(v) if isinstance(v, bool) else v for v in column.to_pylist()]
                                for name, column in zip(table.column_names, table.columns)}


def folder(path, read):
    tables = {}
    for file in sorted(pathlib.Path(path).iterdir()):
        rows, columns = read(file)
        pairs = [("api_id", "api"), ("name_id", "name"), ("domain_id", "domain")]
        named = [pair for pair in pairs if set(pair) <= set(columns) and file.stem != "names"]
        tables[file.stem] = {
            "rows": rows,
            "columns": {name: summed(values) for name, values in columns.items()},
            "named": {i: sorted({(n, t) for n, t in zip(columns[i], columns[t]) if n is not None}) for i, t in named},
        }
    return tables


kind, path = sys.argv[1:]
found = database(path) if kind == "sqlite" else folder(path, comma_separated if kind == "csv" else arrow)
print(json.dumps(found))
