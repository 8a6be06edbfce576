#!/usr/bin/env python3
"""What a hooked message to Metal costs on x86-64: instructions, counted by valgrind, and ns.

    benches/metal.py GPUTRACE DYLIB [KIND...]

GPUTRACE is the command, beside its library for Linux; DYLIB the shim for macOS on x86-64 (ci/apple/run). A program on the
simulated Metal (benches/programs/metal_cost.m) runs without the shim and with it, whose machine code the loader of
tests/fakes/macho executes. Instructions are counted inside one function of the program, which sends so many messages of one
kind. The difference is told apart by whose they are: the shim's; this system's clock, of two reads; this system's
pthread_getspecific; look-ups of methods by GCC's Objective-C runtime, for messages that the shim sends; and what the
simulated Metal does at those messages. ns are of runs without valgrind, in turn, medians. Of KINDS alone there are no ns:
tests/metal/cost.rs reads these lines.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 25
# What is sent, by the program's word for it; how often; where its instructions are counted; and what else the program is told. No more
# command buffers than a queue usually allows, but for one kind.
KINDS = {
    "dispatch": ("dispatchThreadgroups:threadsPerThreadgroup:", 2000, "messages"),
    "pipeline": ("setComputePipelineState:", 2000, "messages"),
    "copy": ("fillBuffer:range:value:", 2000, "messages"),
    "label": ("setLabel: of a command buffer, of 20 bytes", 2000, "messages"),
    "outer": ("computeCommandEncoderWithDispatchType:", 2000, "messages"),
    "encoder": ("computeCommandEncoder, which sends the one above", 2000, "messages"),
    "buffer": ("commandBuffer", 60, "messages"),
    "commit": ("commit, with a handler added", 60, "messages"),
    "commits": ("the same, 1,000 command buffers open", 1000, "messages"),
    "commit4": ("commit:count: of Metal 4, 1 in flight", 16, "messages", "1"),
    "commit4-60": ("the same, 60 in flight", 16, "messages", "60"),
    "commit4-200": ("the same, 200 in flight", 16, "messages", "200"),
    "completed": ("the handler, in Metal's thread", 60, "at_end"),
    "first": ("the first objects of nine classes", 1, "messages"),
}
WHO = ("shim", "clock", "state", "look-ups", "Metal")


def whose(function, library, file):
    """Whose instructions these are."""
    if library == "???":
        return "shim"  # What was mapped by a loader that valgrind does not know.
    if "clock_gettime" in function:
        return "clock"
    if "pthread_getspecific" in function:
        return "state"
    return "look-ups" if "libobjc" in library or "registers.S" in file or "object_getClass" in function else "Metal"


def build(folder):
    """Builds the program and the library that makes it one of macOS; returns the program."""
    # Code of macOS keeps frame pointers.
    flags = ["gcc", "-std=gnu11", "-O2", "-fno-omit-frame-pointer", "-g", "-pthread"]
    fakes = [str(f) for name in ("macho", "metal") for f in sorted((ROOT / "tests/fakes" / name).iterdir()) if f.suffix != ".h"]
    library = folder / "libfake_macos.so"
    subprocess.run([*flags, "-shared", "-fPIC", "-o", library, *fakes, "-lobjc", "-lm"], check=True)
    lines = (ROOT / "ci/apple/interposed").read_text().splitlines()
    wraps = [f"-Wl,--wrap={line[1:]}" for line in lines if line.startswith("_")]
    program = folder / "metal_cost"
    source = ROOT / "benches/programs/metal_cost.m"
    links = [library, f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-lobjc", "-lm", *wraps]
    subprocess.run([*flags, f"-I{ROOT}/tests/fakes/metal", source, "-o", program, *links], check=True)
    return program


def run(folder, command, gputrace, dylib):
    """Runs a command, traced where there is a dylib; returns what it prints."""
    if dylib:
        unset = [word for name in ("LD_PRELOAD", "LD_AUDIT", "NVTX_INJECTION64_PATH") for word in ("-u", name)]
        inside = ["env", *unset, f"DYLD_INSERT_LIBRARIES={dylib}", *command]
        trace = tempfile.mkdtemp(dir=folder)
        command = [gputrace, "-o", f"{trace}/t", "--malloc", "off", "--", *inside]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def instructions(path):
    """Instructions of a callgrind file, by whose they are."""
    names, sums = {}, dict.fromkeys(WHO, 0)
    here = {"fn": "", "ob": "", "fl": ""}
    is_call = False
    for line in path.read_text().splitlines():
        found = re.match(r"c?(fn|ob|fl|fi|fe)=\((\d+)\)(?: (.*))?$", line)
        if found:
            word, number, text = found.groups()
            kind = word if word in here else "fl"
            if text:
                names[kind, number] = text
            if not line.startswith("c"):
                here[kind] = names[kind, number]
        elif line.startswith("calls="):
            is_call = True
        elif re.match(r"[0-9+*-]", line):
            if not is_call:
                sums[whose(here["fn"], here["ob"], here["fl"])] += int(line.split()[1])
            is_call = False
    return sums


def words(kind):
    """What the program is told of a kind."""
    _, count, _, *more = KINDS[kind]
    return [{"commits": "commit"}.get(kind, kind.split("-")[0]), str(count), *more]


def counted(folder, program, kind, gputrace, dylib):
    """Instructions of all messages of a kind."""
    where = KINDS[kind][2]
    out = folder / f"{kind}.{bool(dylib)}"
    tool = ["valgrind", "--tool=callgrind", f"--toggle-collect={where}", f"--callgrind-out-file={out}"]
    run(folder, [*tool, program, *words(kind)], gputrace, dylib)
    return instructions(out)


def main():
    gputrace, dylib = (os.path.abspath(path) for path in sys.argv[1:3])
    wanted = sys.argv[3:]
    folder = Path(tempfile.mkdtemp(prefix="gputrace-metal-"))
    program = build(folder)
    print(f"{'kind':12} {'instructions of one':50} {'plain':>7} {'added':>7}" + "".join(f" {who:>8}" for who in WHO) + "  ns plain  ns added")
    all_ns = all_instructions = 0
    for kind, (message, count, where, *_) in KINDS.items():
        if wanted and kind not in wanted:
            continue
        plain, traced = (counted(folder, program, kind, gputrace, d) for d in (None, dylib))
        added = [(traced[who] - plain[who]) / count for who in WHO]
        line = f"{kind:12} {message:50} {sum(plain.values()) / count:7.0f} {sum(added):7.0f}" + "".join(f" {n:8.0f}" for n in added)
        if where == "messages" and not wanted:
            command = [program, *words(kind)]
            times = [[float(run(folder, command, gputrace, d)) for d in (None, dylib)] for _ in range(ROUNDS)]
            without, with_it = (statistics.median(column) for column in zip(*times))
            line += f" {without:9.1f} {with_it - without:9.1f}"
            if count > 1:
                all_ns += without
                all_instructions += sum(plain.values()) / count
        print(line, flush=True)
    if wanted:
        return
    clock = statistics.median(float(run(folder, [program, "clock", "100000"], gputrace, None)) for _ in range(ROUNDS))
    print(f"ns of one instruction, over all plain messages: {all_ns / all_instructions:.3f}; of one read of the clock: {clock:.1f}")


main()
