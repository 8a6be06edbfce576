#!/usr/bin/env python3
"""What a hooked message to Metal costs on x86-64: instructions, counted by valgrind, and ns.

    benches/metal.py GPUTRACE DYLIB [KIND...]
    benches/metal.py GPUTRACE DYLIB --counts

GPUTRACE is the command, beside its library for Linux; DYLIB the shim for macOS on x86-64 (ci/apple/run). A program on the
simulated Metal (benches/programs/metal_cost.m) runs without the shim and with it, whose machine code the loader of
tests/fakes/macho executes. Instructions are counted inside one function of the program, which sends so many messages of one
kind. The difference is told apart by whose they are: the shim's; this system's clock, of two reads; this system's
pthread_getspecific; look-ups of methods by GCC's Objective-C runtime, for messages that the shim sends; and what the
simulated Metal does at those messages. ns are of runs without valgrind, in turn, medians. Of KINDS alone, and with --counts,
there are no ns: tests/metal/cost.rs reads these lines.
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
# What is sent, by the program's word for it, and how often. One run counts all of these, one after the other.
MESSAGES = {
    "dispatch": ("dispatchThreadgroups:threadsPerThreadgroup:", 2000),
    "threads": ("dispatchThreads:threadsPerThreadgroup:", 2000),
    "indirect": ("dispatchThreadgroupsWithIndirectBuffer:...", 2000),
    "commands": ("executeCommandsInBuffer:withRange:", 2000),
    "pipeline": ("setComputePipelineState:", 2000),
    "end": ("endEncoding", 1000),
    "fill": ("fillBuffer:range:value:", 2000),
    "copy": ("copyFromBuffer:...toBuffer:...size:", 2000),
    "copy-image": ("copyFromTexture:toTexture:", 2000),
    "copy-part": ("copyFromTexture:... of a part", 2000),
    "copy-levels": ("copyFromTexture:... of 6 levels", 2000),
    "replace": ("replaceRegion:... of a texture", 2000),
    "read": ("getBytes:... of a texture", 2000),
    "label": ("setLabel: of a command buffer, of 20 bytes", 2000),
    "label-long": ("setLabel: of 200 bytes", 2000),
    "label-new": ("setLabel: of 21 bytes, each another text", 1000),
    "label-new-long": ("setLabel: of 88 bytes, each another text", 1000),
    "inner": ("computeCommandEncoderWithDispatchType:", 2000),
    "encoder": ("computeCommandEncoder, which sends the one above", 2000),
    "blit": ("blitCommandEncoder", 2000),
    "render": ("renderCommandEncoderWithDescriptor:", 2000),
    "command-buffer": ("commandBuffer", 60),
    "enqueue": ("enqueue", 60),
    "on-schedule": ("addScheduledHandler:", 60),
    "on-end": ("addCompletedHandler:", 60),
    "signal": ("encodeSignalEvent:value:", 2000),
    "gpu-wait": ("encodeWaitForEvent:value:", 2000),
    "wait": ("waitUntilCompleted, of one that is over", 2000),
    "wait-scheduled": ("waitUntilScheduled, the same", 2000),
    "status": ("status", 2000),
    "set-event": ("setSignaledValue:", 2000),
    "event": ("signaledValue", 2000),
    "wait-event": ("waitUntilSignaledValue:timeoutMS:, of what is there", 2000),
    "notify": ("notifyListener:atValue:block:", 60),
    "queue": ("newCommandQueue", 20),
    "new-buffer": ("newBufferWithLength:options:", 60),
    "new-bytes": ("newBufferWithBytes:length:options:", 60),
    "new-no-copy": ("newBufferWithBytesNoCopy:...", 60),
    "new-texture": ("newTextureWithDescriptor:", 60),
    "new-heap": ("newHeapWithDescriptor:", 60),
    "new-event": ("newSharedEvent", 60),
    "new-pipeline": ("newComputePipelineStateWithFunction:error:", 60),
    "new-long": ("the same, of a name of 85 bytes", 60),
    "new-described": ("newComputePipelineStateWithDescriptor:..., labelled", 60),
    "end-buffer": ("dealloc of a buffer", 60),
    "end-pipeline": ("dealloc of a pipeline", 60),
    "begin4": ("beginCommandBufferWithAllocator:", 60),
    "encoder4": ("Metal 4's computeCommandEncoder", 60),
    "signal4": ("Metal 4's signalEvent:value:", 60),
    "gpu-wait4": ("Metal 4's waitForEvent:value:", 60),
    "new-queue4": ("newMTL4CommandQueue", 4),
    "new-buffer4": ("Metal 4's newCommandBuffer", 60),
}
# Those that want a process for themselves, and what the program is told. No more command buffers than a queue usually allows, but for
# one kind.
ALONE = {
    "commit": ("commit, with a handler added", 60, "commit:60"),
    "commit-1000": ("the same, 1,000 command buffers open", 1000, "commit:1000"),
    "commit4": ("commit:count: of Metal 4, 1 in flight", 16, "commit4:16:1"),
    "commit4-60": ("the same, 60 in flight", 16, "commit4:16:60"),
    "commit4-200": ("the same, 200 in flight", 16, "commit4:16:200"),
    "commit4-new": ("the same, the first 60 of a process", 60, "commit4-new:60"),
    "completed": ("the handler, in Metal's thread", 60, "completed:60"),
    "first": ("the first objects of nine classes", 1, "first:1"),
}
KINDS = {kind: (message, count, f"{kind}:{count}") for kind, (message, count) in MESSAGES.items()} | ALONE
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


def counted(folder, program, kinds, gputrace, dylib):
    """Instructions of all messages of each of these kinds, which one process sends."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "out"
    # Metal's thread runs the handler.
    where = "at_end" if kinds == ["completed"] else "messages"
    each = [] if where == "at_end" else ["--dump-after=messages"]
    tool = ["valgrind", "--tool=callgrind", f"--toggle-collect={where}", f"--callgrind-out-file={out}", *each]
    run(folder, [*tool, program, *(KINDS[kind][2] for kind in kinds)], gputrace, dylib)
    return [instructions(Path(f"{out}.{nth}") if each else out) for nth, _ in enumerate(kinds, 1)]


def main():
    gputrace, dylib = (os.path.abspath(path) for path in sys.argv[1:3])
    wanted = [word for word in sys.argv[3:] if word in KINDS]
    has_ns = not sys.argv[3:]
    folder = Path(tempfile.mkdtemp(prefix="gputrace-metal-"))
    program = build(folder)
    print(f"{'kind':14} {'instructions of one':52} {'plain':>7} {'added':>7}" + "".join(f" {who:>8}" for who in WHO) + "  ns plain  ns added" * has_ns)
    all_ns = all_instructions = 0
    kinds = wanted or list(KINDS)
    together = [kind for kind in kinds if kind in MESSAGES]
    for group in [together] * bool(together) + [[kind] for kind in kinds if kind in ALONE]:
        both = zip(*(counted(folder, program, group, gputrace, d) for d in (None, dylib)))
        for kind, (plain, traced) in zip(group, both):
            message, count, words = KINDS[kind]
            added = [(traced[who] - plain[who]) / count for who in WHO]
            line = f"{kind:14} {message:52} {sum(plain.values()) / count:7.0f} {sum(added):7.0f}" + "".join(f" {n:8.0f}" for n in added)
            if has_ns and kind != "completed":
                times = [[float(run(folder, [program, words], gputrace, d)) for d in (None, dylib)] for _ in range(ROUNDS)]
                without, with_it = (statistics.median(column) for column in zip(*times))
                line += f" {without:9.1f} {with_it - without:9.1f}"
                if count > 1:
                    all_ns += without
                    all_instructions += sum(plain.values()) / count
            print(line, flush=True)
    if not has_ns:
        return
    clock = statistics.median(float(run(folder, [program, "clock:2000"], gputrace, None)) for _ in range(ROUNDS))
    print(f"ns of one instruction, over all plain messages: {all_ns / all_instructions:.3f}; of one read of the clock: {clock:.1f}")


main()
