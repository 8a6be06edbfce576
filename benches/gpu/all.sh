#!/usr/bin/env bash
# Everything that only a GPU can show, in one call: benches/gpu/all.sh BINARY [quick]
# BINARY is a built gputrace with its shim beside it. Prints one line per result; docs/benchmarks.md keeps them.
set -u
here=$(dirname "$(readlink -f "$0")")
gputrace=$(readlink -f "$1")
quick=${2:-}
work=$(mktemp -d)
cd "$work" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$gputrace" --version
"$gputrace" doctor 2>&1 | head -40

for name in jax cupy triton numba cuda_python onnxruntime; do
    XLA_PYTHON_CLIENT_PREALLOCATE=false timeout 120 "$gputrace" -o "t-$name" -- python3 "$here/others.py" $name >out 2>err
    code=$?
    cat out
    tail -n 25 err | sed 's/^/    /'
    [ $code = 0 ] || fail "$name exit $code"
done

for name in small convolutions copies streams graphs compiled loader large; do
    timeout 150 "$gputrace" -o "c-$name" -- python3 "$here/programs.py" counts $name "$work/$name.json" >out 2>err ||
        { fail "counts $name"; tail -n 15 err; }
    python3 "$here/compare_counts.py" "c-$name" "$work/$name.json" || fail "counts $name differ"
done

echo "the same by inline hooks:"
for name in small copies graphs; do
    timeout 150 "$gputrace" --hook inline -o "i-$name" -- python3 "$here/programs.py" counts $name "$work/i-$name.json" >out 2>err ||
        { fail "inline counts $name"; tail -n 15 err; }
    python3 "$here/compare_counts.py" "i-$name" "$work/i-$name.json" || fail "inline counts $name differ"
done

echo "ranges named with NVTX, done and in the trace:"
timeout 150 "$gputrace" -o r-ranges -- python3 "$here/ranges.py" run "$work/ranges.json" >out 2>err ||
    { fail "ranges"; tail -n 15 err; }
python3 "$here/ranges.py" compare r-ranges "$work/ranges.json" || fail "ranges differ"

for name in captured compiled; do
    timeout 150 "$gputrace" -o "g-$name" -- python3 "$here/graphs.py" run $name "$work/g-$name.json" >out 2>err ||
        { fail "graphs $name"; tail -n 15 err; }
    python3 "$here/graphs.py" compare "g-$name" "$work/g-$name.json" || fail "graphs $name differ"
done

echo "uncovered driver symbols fetched by these programs:"
python3 - <<'PY'
import glob, json
seen, bad = {}, set()
for path in glob.glob("*/manifest/*.json"):
    for process in json.load(open(path))["processes"]:
        for symbol in process.get("coverage", {}).get("uncovered", []):
            seen.setdefault(symbol["symbol"], 0)
            seen[symbol["symbol"]] += 1
names = sorted(seen)
print("   ", len(names), "symbols:", " ".join(names))
classes = ("cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemFree", "Synchronize", "cuStreamWait")
print("    of launch, copy, set, sync, alloc class:", [n for n in names if any(c in n for c in classes)])
PY

echo "what a hook costs on this machine's processor, with a driver that does nothing:"
sources=$here/../programs
cc -O2 -shared -fPIC -Wl,-soname,libcuda.so.1 -o libcuda.so.1 "$sources/stub_cuda.c"
cc -O2 -o launch_cost "$sources/launch_cost.c" -ldl
cc -O2 -fno-builtin -o malloc_cost "$sources/malloc_cost.c" -lpthread
middle() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] " (quartiles " a[int(NR / 4) + 1] " .. " a[int(3 * NR / 4) + 1] ")" }'; }
for kind in "hot 101 50000" "cold 21 2000"; do
    # shellcheck disable=SC2086 # three arguments
    echo "    launch $kind: ns added $(LD_LIBRARY_PATH=$work "$gputrace" -o "l-$RANDOM" --malloc off -- ./launch_cost $kind 2>/dev/null | cut -d' ' -f3 | middle)"
done
for round in 1 2 3; do
    line="    malloc+free pair, ns: none $(./malloc_cost 31 | middle)"
    for mode in off sample full; do
        line="$line; $mode $("$gputrace" -o "m-$RANDOM" --malloc $mode -- ./malloc_cost 31 2>/dev/null | middle)"
    done
    echo "$line"
done

cc -O2 -o graph_update "$here/graph_update.c" -ldl
for nodes in 1 10 200 2000; do
    echo "    update of a graph of $nodes nodes, us: $(./graph_update $nodes 1000), traced $("$gputrace" -o "u-$nodes" -- ./graph_update $nodes 1000 2>/dev/null)"
done
cc -O2 -o launch_threads "$here/launch_threads.c" -lpthread -ldl
for threads in 1 8 32; do
    line="    launch of an empty kernel, $threads threads, ns, plain and traced in turn:"
    for _ in 1 2 3; do
        line="$line $(./launch_threads $threads 25600) $("$gputrace" -o "k-$RANDOM" -- ./launch_threads $threads 25600 2>/dev/null);"
    done
    echo "$line"
done

pairs=200; large_pairs=12; steps=300; large_steps=40; rounds=3; imports=12
[ -n "$quick" ] && { pairs=20; large_pairs=3; steps=100; large_steps=10; rounds=1; imports=3; }
timeout 280 "$gputrace" -o p-small -- python3 "$here/programs.py" price small $pairs 2>err || fail "price small"
tail -n 25 err
timeout 120 "$gputrace" -o p-large -- python3 "$here/programs.py" price large $large_pairs 2>err || fail "price large"
for _ in $(seq $rounds); do
    echo "plain     small $(python3 "$here/programs.py" plain small $steps)"
    echo "gputrace  small $("$gputrace" -o "ab-$RANDOM" -- python3 "$here/programs.py" plain small $steps 2>/dev/null)"
done
for _ in $(seq $rounds); do
    echo "plain     large $(python3 "$here/programs.py" plain large $large_steps)"
    echo "gputrace  large $("$gputrace" -o "ab-$RANDOM" -- python3 "$here/programs.py" plain large $large_steps 2>/dev/null)"
done
python3 - "$gputrace" $imports <<'PY'
import statistics, subprocess, sys, time
gputrace, pairs = sys.argv[1], int(sys.argv[2])
command, plain, traced = ["python3", "-c", "import torch"], [], []
for pair in range(pairs):
    for times, before in ((plain, []), (traced, [gputrace, "-o", f"import-{pair}", "--"])):
        start = time.perf_counter()
        subprocess.run(before + command, check=True, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
change = sorted((t - p) / p * 100 for p, t in zip(plain, traced))
print(f"import torch, {pairs} pairs: plain {statistics.median(plain):.3f} s, traced {statistics.median(traced):.3f} s, "
      f"difference median {statistics.median(change):+.1f} % ({change[pairs // 4]:+.1f} .. {change[-pairs // 4 - 1]:+.1f} %)")
PY
du -sb p-small | cut -f1 | sed 's/^/bytes of p-small: /'
python3 - <<'PY'
import glob
import pyarrow.parquet as parquet
rows = bytes_ = 0
for path in glob.glob("p-small/**/*.parquet", recursive=True):
    table = path.split("/")[1]
    meta = parquet.ParquetFile(path).metadata
    size = sum(meta.row_group(i).column(j).total_compressed_size for i in range(meta.num_row_groups) for j in range(meta.num_columns))
    if table in ("launches", "syncs", "transfers", "api", "device_memory"):
        rows, bytes_ = rows + meta.num_rows, bytes_ + size
    print(f"    {table}: {meta.num_rows} rows, {size / max(meta.num_rows, 1):.2f} bytes each")
print(f"host events on disk: {bytes_ / max(rows, 1):.2f} bytes each over {rows}")
PY
[ $failed = 0 ] && echo "ALL PASSED" || echo "SOME FAILED"
exit $failed
