#!/usr/bin/env python3
"""How much memory exports take of traces in which much differs: stacks, names of kernels, processes.

usage: benches/exports.py GPUTRACE FOLDER [STACKS NAMES PROCESSES]

Makes profiles as torch.profiler writes them, with so many (150,000, 400,000 and 40,000) of each, imports them into FOLDER and exports them in
each format. Prints for each trace and format the most memory that the process had (KiB resident) and how long it took.
"""

import os
import resource
import subprocess
import sys
import time

FORMATS = ["perfetto", "chrome", "kineto", "sqlite", "csv", "arrow", "folded", "speedscope", "pprof"]
MORE = {"folded": ["--value", "wait_time"], "pprof": ["--of", "waits"]}


def event(category, name, thread, start, length, **args):
    """A bar of a profile."""
    words = ",".join(f'"{key.replace("_", " ")}":{value}' for key, value in args.items())
    return (
        f'{{"ph":"X","cat":"{category}","name":"{name}","pid":{thread},"tid":{thread},"ts":{start},"dur":{length},'
        f'"args":{{{words}}}}}'
    )


def stacks(count):
    """A wait from within five functions of Python, each time others."""
    for n in range(count):
        start = 1000 + n * 20
        for depth in range(5):
            name = f"/home/me/some/long/path/module_{n % 5000}.py({n}): function_number_{n}_{depth}"
            yield event("python_function", name, 1, start + depth, 18 - 2 * depth, Python_id=5 * n + depth + 1)
        yield event("cuda_runtime", "cudaStreamSynchronize", 1, start + 6, 2, correlation=n + 1)


def names(count):
    """A launch and its kernel, each time another one."""
    for n in range(count):
        start, name = 1000 + n * 5, f"kernel_with_a_long_name_{'x' * 200}_{n}"
        yield event("cuda_runtime", "cudaLaunchKernel", 1, start, 2, correlation=n + 1)
        yield event("kernel", name, 0, start + 3, 2, correlation=n + 1, stream=7, device=0)


def processes(count):
    """A launch and its kernel, each time of another process."""
    for n in range(count):
        start = 1000 + n * 3
        yield event("cuda_runtime", "cudaLaunchKernel", n + 10, start, 2, correlation=n + 1)
        yield event("kernel", "k", 0, start + 2, 1, correlation=n + 1, stream=7, device=0)


def most_memory(command):
    """The most memory that a command had, and how long it took: of a process of its own, which has no other children."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        began = time.monotonic()
        status = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        os.write(there, f"{status} {most} {time.monotonic() - began:.2f}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    status, most, took = os.read(here, 100).decode().split()
    assert status == "0", command
    return int(most), float(took)


def main():
    gputrace, folder = sys.argv[1:3]
    counts = [int(count) for count in sys.argv[3:6]] or [150_000, 400_000, 40_000]
    for make, count in zip((stacks, names, processes), counts):
        what = make.__name__
        profile, trace = f"{folder}/{what}.json", f"{folder}/{what}"
        with open(profile, "w") as file:
            file.write('{"schemaVersion":1,"with_stack":1,"deviceProperties":[{"id":0,"name":"G"}],"traceEvents":[\n')
            for n, bar in enumerate(make(count)):
                file.write((",\n" if n else "") + bar)
            file.write("]}")
        subprocess.run([gputrace, "--quiet", "import", profile, "-o", trace], check=True, stdout=subprocess.DEVNULL)
        os.remove(profile)
        for form in FORMATS:
            out = f"{folder}/{what}.{form}"
            options = ["--format", form, *MORE.get(form, []), "-o", out]
            most, took = most_memory([gputrace, "--quiet", "export", trace, *options])
            print(what, count, form, most, took, flush=True)


main()
