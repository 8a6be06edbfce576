"""A thousand million allocations in sampled mode, as many as a busy program makes in a day: memory and disk over the run.

usage: malloc_soak.py [GPUTRACE [MILLIONS]]

Compiles benches/programs/malloc_cost.c and runs it traced. Prints, at each tenth of the run, the resident memory of program and
collector and the bytes of the trace, then how long it took and what the trace says was lost. Needs cc and Linux's /proc.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def resident_mib(pid):
    """Resident memory of a process, of its files too; 0 when it has ended."""
    try:
        for line in open(f"/proc/{pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0.0


def bytes_of(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main():
    gputrace = sys.argv[1] if len(sys.argv) > 1 else str(HERE.parent / "target/release/gputrace")
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    with tempfile.TemporaryDirectory() as work:
        program, trace = pathlib.Path(work, "malloc_cost"), pathlib.Path(work, "trace")
        source = HERE / "programs/malloc_cost.c"
        subprocess.run(["cc", "-O2", "-fno-builtin", source, "-o", program, "-lpthread"], check=True)
        command = [gputrace, "--malloc", "sample", "-o", trace, "--", program, str(rounds), "1000000"]
        begin, looked, own = time.monotonic(), 0.0, None
        times, said = pathlib.Path(work, "times"), pathlib.Path(work, "said")
        with open(times, "w") as out, open(said, "w") as err, subprocess.Popen(command, stdout=out, stderr=err) as tracer:
            print("seconds  program MiB  collector MiB  trace MiB")
            while tracer.poll() is None:
                time.sleep(0.2)
                if time.monotonic() - looked < 5:
                    continue
                looked = time.monotonic()
                children = pathlib.Path(f"/proc/{tracer.pid}/task/{tracer.pid}/children")
                own = own or next(iter(children.read_text().split() if children.exists() else []), None)
                sizes = resident_mib(own) if own else 0.0, resident_mib(tracer.pid), bytes_of(trace) / 2**20
                print(f"{looked - begin:7.0f}  {sizes[0]:11.1f}  {sizes[1]:13.1f}  {sizes[2]:9.2f}", flush=True)
        pairs_ns = sorted(float(line) for line in times.read_text().split())
        done, summary = len(pairs_ns), said.read_text()
        print(f"{done} million pairs in {time.monotonic() - begin:.0f} s, median {pairs_ns[done // 2]:.1f} ns each")
        print(f"trace {bytes_of(trace) / 2**20:.2f} MiB", *(line for line in summary.splitlines() if "lost" in line))


if __name__ == "__main__":
    main()
