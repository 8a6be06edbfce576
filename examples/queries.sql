-- Twelve questions to a trace, for DuckDB.
--
--     sed 's#TRACE#gputrace-demo-20250102T030405Z#g' examples/queries.sql | duckdb
--
-- TRACE is the folder that gputrace wrote. A table without rows has no folder: its queries then find no files. Times are
-- nanoseconds; start_ns counts from 1970-01-01 UTC. `gputrace schema` lists every column with its unit and meaning.

-- The name behind an id. Several collectors may each have written it.
CREATE OR REPLACE VIEW name AS
SELECT DISTINCT name_id, kind, name FROM read_parquet('TRACE/names/**/*.parquet', hive_partitioning = true);

-- 1. What do launches cost, by function? (Nsight Systems' cuda_api_sum, for launches)
SELECT n.name AS api, count(*) AS calls, sum(api_ns) / 1e6 AS total_ms, avg(api_ns) / 1e3 AS avg_us,
       median(api_ns) / 1e3 AS med_us, min(api_ns) / 1e3 AS min_us, max(api_ns) / 1e3 AS max_us
FROM read_parquet('TRACE/launches/**/*.parquet', hive_partitioning = true) l JOIN name n ON n.name_id = l.api_id
GROUP BY ALL ORDER BY total_ms DESC;

-- 2. Which kernels are launched most? (names are mangled as the driver gave them)
SELECT n.name AS kernel, count(*) AS launches, sum(api_ns) / 1e6 AS api_ms
FROM read_parquet('TRACE/launches/**/*.parquet', hive_partitioning = true) l JOIN name n USING (name_id)
GROUP BY ALL ORDER BY launches DESC LIMIT 20;

-- 3. With which grids and blocks?
SELECT n.name AS kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, count(*) AS launches
FROM read_parquet('TRACE/launches/**/*.parquet', hive_partitioning = true) l JOIN name n USING (name_id)
GROUP BY ALL ORDER BY launches DESC LIMIT 20;

-- 4. How many launches in each second, by process?
SELECT pid, make_timestamp(start_ns // 1000000000 * 1000000) AS second, count(*) AS launches
FROM read_parquet('TRACE/launches/**/*.parquet', hive_partitioning = true)
GROUP BY ALL ORDER BY pid, second;

-- 5. Which threads launch, and what is each thread's share of time in launch calls?
SELECT pid, tid, count(*) AS launches, sum(api_ns) / 1e6 AS api_ms,
       100.0 * sum(api_ns) / (max(start_ns + api_ns) - min(start_ns)) AS percent_of_its_time
FROM read_parquet('TRACE/launches/**/*.parquet', hive_partitioning = true)
GROUP BY ALL ORDER BY launches DESC;

-- 6. Where does the host wait?
SELECT n.name AS api, s.kind, count(*) AS calls, sum(api_ns) / 1e6 AS total_ms, median(api_ns) / 1e3 AS med_us
FROM read_parquet('TRACE/syncs/**/*.parquet', hive_partitioning = true) s JOIN name n ON n.name_id = s.api_id
WHERE s.kind IN ('context', 'stream', 'event')
GROUP BY ALL ORDER BY total_ms DESC;

-- 7. What is copied, in which direction, from and to which memory?
SELECT kind, direction, src_kind, dst_kind, "async", count(*) AS calls, sum(bytes) / 1e6 AS mb, sum(api_ns) / 1e6 AS api_ms,
       100.0 * count(*) FILTER (bytes BETWEEN 1 AND 65535) / count(*) AS small_percent
FROM read_parquet('TRACE/transfers/**/*.parquet', hive_partitioning = true)
GROUP BY ALL ORDER BY api_ms DESC;

-- 8. Which copies block, because their host memory is pageable or the function is synchronous?
SELECT n.name AS api, direction, src_kind, dst_kind, count(*) AS calls, sum(bytes) / 1e6 AS mb, sum(api_ns) / 1e6 AS api_ms
FROM read_parquet('TRACE/transfers/**/*.parquet', hive_partitioning = true) t JOIN name n ON n.name_id = t.api_id
WHERE t.kind = 'copy' AND (src_kind = 'pageable' OR dst_kind = 'pageable' OR NOT "async") AND direction <> 'DtoD'
GROUP BY ALL ORDER BY api_ms DESC;

-- 9. What do allocation and free calls cost?
SELECT n.name AS api, m.action, m.kind, count(*) AS calls, sum(bytes) / 1e6 AS mb, sum(api_ns) / 1e6 AS api_ms
FROM read_parquet('TRACE/device_memory/**/*.parquet', hive_partitioning = true) m JOIN name n ON n.name_id = m.api_id
GROUP BY ALL ORDER BY api_ms DESC;

-- 10. How much device memory was live at most, and when? (a free row carries the bytes of its allocation)
SELECT pid, max(live) / 1e6 AS peak_mb, arg_max(start_ns, live) - min(start_ns) AS peak_after_ns
FROM (SELECT pid, start_ns, sum(CASE action WHEN 'alloc' THEN bytes ELSE -bytes END)
             OVER (PARTITION BY process_id ORDER BY start_ns ROWS UNBOUNDED PRECEDING) AS live
      FROM read_parquet('TRACE/device_memory/**/*.parquet', hive_partitioning = true)
      WHERE kind IN ('device', 'async', 'managed') AND result = 0)
GROUP BY ALL ORDER BY peak_mb DESC;

-- 11. How much does the host allocate each second? (weight_bytes: what a sampled allocation stands for)
SELECT pid, make_timestamp(start_ns // 1000000000 * 1000000) AS second, sum(weight_bytes) / 1e6 AS mb, count(*) AS samples
FROM read_parquet('TRACE/host_memory/**/*.parquet', hive_partitioning = true)
WHERE action = 'alloc'
GROUP BY ALL ORDER BY pid, second;

-- 12. Which processes were there, which were not traced, and why?
SELECT pid, rank, host, exe, traced, reason, events, exit_code, exit_signal, (end_ns - start_ns) / 1e9 AS seconds
FROM read_parquet('TRACE/processes/**/*.parquet', hive_partitioning = true)
ORDER BY start_ns;
