-- The eleven questions that users ask first of a trace, for DuckDB: a comment and a statement each.
--
--     duckdb -cmd "SET VARIABLE trace = 'gputrace-demo-20250102T030405Z'" < examples/queries.sql
--
-- or from Python:
--
--     connection = duckdb.connect()
--     connection.execute("SET VARIABLE trace = 'gputrace-demo-20250102T030405Z'")
--     for statement in connection.extract_statements(open("examples/queries.sql").read()):
--         print(*connection.execute(statement).fetchall(), sep="\n")
--
-- A table without rows has no folder: a question that needs it says "No files found", and the others go on. What the GPU did
-- is known in imported traces and in those of the simulated driver. Times are nanoseconds; start_ns counts from 1970-01-01
-- UTC. `gputrace schema` lists every column with its unit and meaning.

SET VARIABLE trace = coalesce(getvariable('trace'), 'trace');

-- A table of the trace, by its name.
CREATE OR REPLACE TEMP MACRO rows_of(part) AS TABLE
    SELECT * FROM read_parquet(getvariable('trace') || '/' || part || '/*/*.parquet', hive_partitioning = true, union_by_name = true);

-- The name behind an id. Several collectors may each have written it; kernels are mangled as the driver gave them.
CREATE OR REPLACE TEMP MACRO names() AS TABLE
    SELECT name_id, any_value(name) AS name FROM rows_of('names') GROUP BY name_id;

-- The line of each stack: its innermost frame of Python that is not installed. A row of stacks is the innermost frame of one, and who
-- called that is another row: that of caller_id, and where those end that of the last outer_id on the way.
CREATE OR REPLACE TEMP MACRO lines() AS TABLE
    WITH RECURSIVE stacks AS (
        SELECT DISTINCT ON (stack_id) stack_id, caller_id, outer_id, file, line, function,
               coalesce(language = 'python' AND NOT regexp_matches(file, '^<|/(site|dist)-packages/|/lib/python3'), false) AS own
        FROM rows_of('stacks')),
    found AS (SELECT stack_id, stack_id AS frame, NULL::BIGINT AS outside FROM stacks
              UNION ALL
              SELECT f.stack_id, coalesce(s.caller_id, s.outer_id, f.outside),
                     CASE WHEN s.caller_id IS NOT NULL THEN coalesce(s.outer_id, f.outside) END
              FROM found f JOIN stacks s ON s.stack_id = f.frame WHERE NOT s.own)
    SELECT f.stack_id, s.file, s.line, s.function FROM found f JOIN stacks s ON s.stack_id = f.frame WHERE s.own;

-- All that a GPU did, with the end of what had begun before: where that is earlier than its own begin, the GPU was idle. The
-- pattern names kernels and device_copies, of which a trace may lack one, and device_memory, which has no gpu_ns.
CREATE OR REPLACE TEMP MACRO work() AS TABLE
    SELECT *, start_ns + gpu_ns AS end_ns,
           max(start_ns + gpu_ns) OVER (PARTITION BY process_id, device ORDER BY start_ns, gpu_ns
                                        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy_until_ns
    FROM (SELECT process_id, pid, device, start_ns, gpu_ns, name_id, concat_ws(' ', kind, direction) AS copy
          FROM (SELECT NULL::BIGINT AS name_id, NULL::VARCHAR AS kind, NULL::VARCHAR AS direction WHERE false
                UNION ALL BY NAME SELECT * FROM rows_of('[kd]e[rv][ni][ec][le]*'))
          WHERE gpu_ns IS NOT NULL);

-- 1. Where does the GPU's time go, by kernel? (Nsight Systems' cuda_gpu_kern_sum)
SELECT name AS kernel, count(*) AS calls, sum(gpu_ns) / 1e6 AS total_ms, 100 * sum(gpu_ns) / sum(sum(gpu_ns)) OVER () AS percent,
       avg(gpu_ns) / 1e3 AS avg_us, median(gpu_ns) / 1e3 AS med_us, min(gpu_ns) / 1e3 AS min_us, max(gpu_ns) / 1e3 AS max_us
FROM rows_of('kernels') LEFT JOIN names() USING (name_id)
GROUP BY name ORDER BY total_ms DESC;

-- 2. For which share of its range was each GPU busy? (the union: what overlaps counts once; a process and device a row)
SELECT pid, device, sum(greatest(0, end_ns - greatest(start_ns, coalesce(busy_until_ns, start_ns)))) / 1e6 AS busy_ms,
       (max(end_ns) - min(start_ns)) / 1e6 AS range_ms, 100 * busy_ms / range_ms AS busy_percent
FROM work() GROUP BY process_id, pid, device ORDER BY busy_ms DESC;

-- 3. Which were the longest gaps between operations of a GPU, and what came next? (the 20 longest of all GPUs)
SELECT pid, device, (start_ns - busy_until_ns) / 1e3 AS idle_us, (start_ns - min(start_ns) OVER ()) / 1e6 AS until_ms,
       coalesce(name, copy) AS next
FROM work() LEFT JOIN names() USING (name_id)
QUALIFY start_ns > busy_until_ns ORDER BY idle_us DESC, until_ms LIMIT 20;

-- 4. What do launches cost the host, by function? (Nsight Systems' cuda_api_sum, for launches)
SELECT name AS api, count(*) AS calls, sum(api_ns) / 1e6 AS total_ms, avg(api_ns) / 1e3 AS avg_us,
       median(api_ns) / 1e3 AS med_us, min(api_ns) / 1e3 AS min_us, max(api_ns) / 1e3 AS max_us
FROM rows_of('launches') l JOIN names() n ON n.name_id = l.api_id
GROUP BY name ORDER BY total_ms DESC;

-- 5. In which line of the program does the host wait? (the innermost frame of Python that is not installed; no file: calls without
-- one, such as those of less than 20 us. Waits, with the whole time of copies and sets that found work pending: of these, and of
-- frees and allocations, report --only syncs says how long they waited)
SELECT s.file AS file, s.line AS line, s.function AS function, n.name AS api, count(*) AS waits,
       sum(api_ns) / 1e6 AS total_ms, max(api_ns) / 1e3 AS max_us
FROM (SELECT api_id, api_ns, stack_id FROM rows_of('syncs') WHERE kind IN ('context', 'stream', 'event')
      UNION ALL SELECT api_id, api_ns, stack_id FROM rows_of('transfers') WHERE pending_streams > 0)
LEFT JOIN lines() s USING (stack_id)
JOIN names() n ON n.name_id = api_id
GROUP BY ALL ORDER BY total_ms DESC;

-- 6. What did the GPU copy and set, in which direction, and how fast?
SELECT kind, direction, src_kind, dst_kind, count(*) AS calls, sum(bytes) / 1e6 AS mb, sum(gpu_ns) / 1e6 AS gpu_ms,
       sum(bytes) / nullif(sum(gpu_ns), 0) AS gb_per_s, 100 * count(*) FILTER (bytes BETWEEN 1 AND 65535) / count(*) AS small_percent
FROM rows_of('device_copies')
GROUP BY ALL ORDER BY gpu_ms DESC;

-- 7. Which copies hold the host up, because their memory is pageable or the function is synchronous?
SELECT name AS api, direction, src_kind, dst_kind, count(*) AS calls, sum(bytes) / 1e6 AS mb, sum(api_ns) / 1e6 AS api_ms
FROM rows_of('transfers') t JOIN names() n ON n.name_id = t.api_id
WHERE kind = 'copy' AND direction <> 'DtoD' AND ('pageable' IN (src_kind, dst_kind) OR NOT "async")
GROUP BY ALL ORDER BY api_ms DESC;

-- 8. How much device memory was live at most, second by second? (a free carries the bytes of its allocation, and counts from
-- its begin, an allocation from its end; what was live before a second's first call counts in it too, and seconds without a call
-- are no rows; memory of the host does not count; under a caching allocator this is what that reserved)
SELECT pid, make_timestamp(at_ns // 1000000000 * 1000000) AS second, max(greatest(live, live - bytes)) / 1e6 AS peak_mb
FROM (SELECT pid, at_ns, bytes, sum(bytes) OVER (PARTITION BY process_id ORDER BY at_ns, bytes ROWS UNBOUNDED PRECEDING) AS live
      FROM (SELECT process_id, pid, if(action = 'alloc', start_ns + api_ns, start_ns) AS at_ns,
                   if(action = 'alloc', bytes, -bytes) AS bytes
            FROM rows_of('device_memory') m JOIN names() n ON n.name_id = m.api_id
            WHERE kind IN ('device', 'async', 'managed', 'virtual', 'array') AND result = 0 AND name NOT IN ('cuMemMap', 'cuMemUnmap')))
GROUP BY ALL ORDER BY pid, second;

-- 9. How long do the ranges that the program names take, its steps among them, and how evenly? (names that differ by numbers are
-- one row, such as "step #", also where report --only ranges tells them apart; marks and ranges without an end are left out; p50
-- and p99 are times that occurred; steps that have no ranges are found by report --only steps)
SELECT pid, regexp_replace(name, '[0-9]+', '#', 'g') AS range, count(*) AS times, quantile_disc(end_ns - r.start_ns, 0.5) / 1e6 AS p50_ms,
       quantile_disc(end_ns - r.start_ns, 0.99) / 1e6 AS p99_ms, min(end_ns - r.start_ns) / 1e6 AS min_ms,
       max(end_ns - r.start_ns) / 1e6 AS max_ms, stddev_pop(end_ns - r.start_ns) / 1e6 AS stddev_ms
FROM rows_of('ranges') r JOIN names() USING (name_id)
WHERE r.kind <> 'mark' AND end_ns IS NOT NULL
GROUP BY ALL ORDER BY sum(end_ns - r.start_ns) DESC;

-- 10. Which rank do the others wait for in collectives? (it comes last, so its own kernels of NCCL wait least: the first row)
SELECT p.rank, p.pid, count(*) AS collectives, sum(gpu_ns) / 1e6 AS nccl_ms, median(gpu_ns) / 1e3 AS med_us,
       (sum(gpu_ns) - min(sum(gpu_ns)) OVER ()) / 1e6 AS waits_longer_ms
FROM rows_of('kernels') JOIN names() USING (name_id) JOIN rows_of('processes') p USING (process_id)
WHERE name LIKE 'nccl%Kernel%'
GROUP BY ALL ORDER BY nccl_ms;

-- 11. Which lines allocate most on the host, and what of that is live at the end? (malloc: estimates where it was sampled, see
-- malloc_mode of processes; no file: allocations without a line of Python that is not installed; what --cull summed up is allocated, and not live)
SELECT s.file AS file, s.line AS line, s.function AS function, sum(calls) FILTER (action <> 'free') AS recorded,
       sum(weight_bytes) FILTER (action <> 'free') / 1e6 AS mb,
       sum(CASE action WHEN 'alloc' THEN weight_bytes WHEN 'free' THEN -weight_bytes ELSE 0 END) / 1e6 AS live_mb
FROM rows_of('host_memory') LEFT JOIN lines() s USING (stack_id)
WHERE action IN ('alloc', 'free', 'culled')
GROUP BY ALL ORDER BY mb DESC;
