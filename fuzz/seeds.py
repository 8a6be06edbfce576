#!/usr/bin/env python3
"""Makes the seeds of the fuzzer's corpora: fuzz/corpus/TARGET/seed-NAME. Inputs that the fuzzer found stand beside them, by other names.

Needs a C compiler and binutils. Rerun it where a target's form of input changes (collectors/src/fuzzed, src/fuzzed.rs), with the path of a trace
of each kind whose account shall be a seed:  fuzz/seeds.py [TRACE ...]
"""
import gzip
import json
import pathlib
import sqlite3
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TRACES = HERE.parent / "tests/traces"


def put(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{name}").write_bytes(data if isinstance(data, bytes) else data.encode())


def number(n):
    """As `Input::number` reads it."""
    return bytes([n]) if n < 224 else bytes([255]) + struct.pack(">Q", n & (2**64 - 1))


def event(hook, payload=(1, 2, 3, 4), age=20, length=5, odd=1):
    return bytes([hook]) + number(age) + number(length) + bytes([odd]) + b"".join(map(number, payload))


def text(kind, data, how=0, key=None, key_number=0, stack_number=0):
    size = bytes([len(data)]) if len(data) < 256 else struct.pack("<H", len(data))
    how |= (2 if len(data) > 255 else 0) | (1 if key is not None else 0)
    head = bytes([kind, how]) + number(key_number) + size + data
    return head + (number(key) if key is not None else b"") + (number(stack_number) if how & 4 else b"")


def segments():
    hooks = 47
    calls = b"".join(bytes([0]) + event(hook, (hook, 7, 1 << 20, 9)) for hook in range(hooks))
    again = b"".join(bytes([0x10]) + event(hook, (hook, 7, 3, 9), age=9, odd=2) for hook in range(hooks))
    put("segment", "calls", bytes([1 | 4]) + calls + bytes([13, 11, 1]) + again + bytes([14]))
    put("segment", "malloc", bytes([2 | 4 | 8]) + b"".join(
        bytes([0]) + event(9 + n % 2, (n // 2 * 64, 4096, 64, 0), age=200 - n) for n in range(60)) + bytes([13, 14]))
    block = lambda n: bytes([15]) + struct.pack("<H", 64 + n) + bytes([0]) + number(n) + struct.pack("<H", n * 7) + number(1000 + n)
    put("segment", "pending", bytes([2 | 4 | 16]) + bytes([13]) + b"".join(map(block, range(60))) + bytes([13, 11]) + block(3) + bytes([13, 14]))
    words = lambda *numbers: struct.pack(f"<{len(numbers)}Q", *numbers)
    work = words(1 | 5 << 32, 1000, 2000, 0, 7, 0, 9, 4 | 1 << 32, 64, 32, 0)
    code = struct.pack("<BBBBHHII", 11, 0, 0, 0, 4, 0, 1, 6) + b"main/tmp/a.py"
    named = [text(kind, f"name of kind {kind}".encode()) for kind in (1, 2, 3, 5, 6, 7, 8, 9, 12, 13, 14, 19, 22)]
    told = [
        text(11, words(0, 0xe0, 3, 1 << 32 | 2, *range(8)) + words(0xf0, 2, 0xf1, 3), key_number=1 << 56 | 5),
        text(20, work * 3), text(21, b"/lib/libcupti.so", key=12, key_number=1), text(21, b"", key=1, key_number=2),
        text(21, b"", key=0, key_number=4), text(21, b"", key=1, key_number=3), text(23, work), text(24, b"", key=3, key_number=1),
        text(25, work + words(1, 2, 3)), text(10, words(0, 1, 2, 3, 4, 5) + b"GPU-0 name"),
        text(18, bytes([0x80, 1, 0x88, 2, 0x90, 3]), key=50), text(17, code, key=50), text(19, b"/bin/true", key=60),
        text(16, struct.pack("<QQQQ", 50, 2, 60, 0x1000), how=4, key_number=1, stack_number=1),
        text(16, struct.pack("<QQ", 60, 0x1000), how=4, key_number=2, stack_number=3),
        text(4, words(1, 2)), text(8, b"/lib/libnccl.so.2"),
    ]
    for n, one in enumerate([b"".join(bytes([3]) + t for t in named), b"".join(bytes([4]) + t for t in told)]):
        put("segment", f"texts-{n}", bytes([1]) + bytes([0]) + event(0) + one + bytes([13, 0]) + event(1) + bytes([10, 8]) + event(2) + bytes([14]))
    metal = b"".join(bytes([0]) + event(hook, (0xa0, 0xb0, n, 1), age=220 - n) for n, hook in enumerate(list(range(20, 44)) * 2))
    put("segment", "metal", bytes([1]) + metal + bytes([9]) + number(0xb0) + number(30) + number(10) + b"\0\0" + bytes([7, 9]) + event(0) + bytes([14]))
    pokes = b"".join(bytes([part]) + struct.pack("<H", place) + number(value)
                     for part in range(8) for place, value in ((0, 1), (8, 3), (64, 2**64 - 1), (512, 2)))
    put("segment", "pokes", bytes([1]) + calls + bytes([14]) + pokes)


def journals():
    item = lambda kind, table, data, first=0, rows=1: bytes([kind, table]) + number(first) + number(rows) + struct.pack("<H", len(data)) + data
    part = lambda name, length, footer: struct.pack("<H", len(name)) + name + struct.pack("<Q", length) + footer
    names = [b"launches/host=h/1-000000.parquet.part", b"../outside.parquet.part", b"../../outside.parquet.part",
             b"/dev/shm/x.parquet.part", b"launches/host=../1-000000.parquet.part", b"launches/host=h/../../../../launches/host=h/1-000000.parquet.part",
             b"x.part", b"launches/host=h/1-000001.parquet.part/x.part", b"manifest/h-1.json"]
    frames = b"\0" + b"".join(item(2, 2, part(name, 10, b"foot")) for name in names)
    frames += item(1, 2, b"no parquet") + item(3, 0, b"") + item(2, 0, part(names[0], 2**64 - 1, b"foot")) + item(9, 99, b"?")
    put("journal", "parts", frames)
    put("journal", "raw", b"\1GTJ1" + struct.pack("<II", 4, 0) + b"abcdGTJ1")
    for host in ("h", "../../../out", "/dev/shm/gputrace-fuzz-out"):
        about = '{"schema_version":SCHEMA,"tool_version":"0","command":[],"host":"HOST","launcher_id":1,"started_ns":1,"ended_ns":null,"complete":false,' \
            '"clock":{"kind":"tsc","pairs":[],"rejected":0},"root":null,"processes":[],"untraced":[],"removed_files":["../x"],"notes":[]}'
        schema = next(line for line in (HERE.parent / "collectors/src/schema/mod.rs").read_text().splitlines() if "SCHEMA_VERSION: u32" in line)
        about = about.replace("SCHEMA", schema.split("=")[1].strip(" ;")).replace("HOST", host).encode()
        put("recover", "host-" + str(len(host)), struct.pack("<H", len(about)) + about + frames)


def files():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "x.c").write_text("static inline int in(int n) { return n * 3; }\nint seen(int n) { return in(n) + 1; }\nint other(void) { return seen(2); }\n")
        run = lambda line: subprocess.run(line.split(), cwd=folder, check=True)
        run(f"cc -g -O1 -fdebug-prefix-map={folder}=/src -shared -fPIC -nostdlib -Wl,-z,max-page-size=16 x.c -o x.so")
        library = (folder / "x.so").read_bytes()
        put("symbols", "library", library)
        run("strip x.so")
        put("executable", "library", (folder / "x.so").read_bytes())
        section = {}
        for name in (".eh_frame_hdr", ".eh_frame"):
            run(f"objcopy --dump-section {name}=out x.so")
            section[name] = (folder / "out").read_bytes()
        put("unwind", "library", bytes([len(section[".eh_frame_hdr"]), 7]) + section[".eh_frame_hdr"] + section[".eh_frame"])
    header = struct.pack("<8I", 0xfeedfacf, 0x0100000c, 0, 2, 2, 168, 0, 0)
    segment = struct.pack("<II16s", 0x19, 152, b"__RESTRICT") + struct.pack("<12I", *[0] * 8, 7, 5, 1, 0) + struct.pack("<16s16s12I", b"__restrict", b"__RESTRICT", *[0] * 12)
    directory = struct.pack(">11I", 0xfade0c02, 44, 0x20400, 0x10000, *[0] * 7)
    granted = b"<plist version=\"1.0\"><dict><key>com.apple.security.cs.allow-dyld-environment-variables</key><true/></dict></plist>"
    granted = struct.pack(">II", 0xfade7171, 8 + len(granted)) + granted
    signature = struct.pack(">7I", 0xfade0cc0, 28 + 44 + len(granted), 2, 0, 28, 5, 72) + directory + granted
    thin = header + segment + struct.pack("<4I", 0x1d, 16, 200, len(signature)) + signature
    put("executable", "macho", thin)
    put("executable", "universal", struct.pack(">II5I", 0xcafebabe, 1, 0x0100000c, 0, 64, len(thin), 6).ljust(64, b"\0") + thin)
    put("perf_map", "lines", "1000 20 py::first:/a b.py\n0x2000 0x10 LazyCompile:*second\nff00 ffffffffffffffff end\n1008 4 inside\n")


def asked():
    put("control", "set", "set max-size=7 hang-after=off keep-detail=1.5 dump-slow=3")
    put("control", "start", "start from=100000000000 for=2000000000 every=60000000000")
    put("control", "ping", "ping")
    put("orders", "start", b"\2in=1.5&for=2&every=60")
    put("orders", "set", b"\1max-size=7&hang-after=off")
    hello = b"gputrace" + struct.pack("<IIQ", 1, 42, 1 << 24)
    put("hello", "segment", bytes([2, 1]) + hello)
    put("hello", "refusal", bytes([0, 0]) + b"gputrace" + struct.pack("<IIQ", 1, 42, 2) + b"/bin/true")
    put("hello", "many", bytes([0, 19]) + hello)
    put("ring", "slots", b"".join(struct.pack("<IQ", part + 8 * place, value) for part, place, value in
                                 [(3, 8, 1), (4, 0, 1), (4, 4, 1 | 3 << 32), (7, 0, 0), (7, 4, 1 << 16), (7, 8, 0xff01)]))


def short(value):
    """Of the machine nothing stays, and of each list its begin."""
    if isinstance(value, dict):
        return {key: short(of) for key, of in value.items()}
    if isinstance(value, list):
        return [short(of) for of in value[:4]]
    return "/a/path" if isinstance(value, str) and "/" in value else value


def profiles(traces):
    kineto = (TRACES / "kineto-rank0.json").read_bytes()
    put("kineto", "rank0", kineto)
    put("kineto", "rank0.gz", gzip.compress(kineto, 9, mtime=0))
    put("torch", "memory", (TRACES / "torch-memory.pickle").read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.sqlite"
        base = sqlite3.connect(path)
        base.execute("PRAGMA page_size=512")
        base.executescript((TRACES / "nsys.sql").read_text())
        base.close()
        put("nsys", "report", path.read_bytes())
    for trace in map(pathlib.Path, traces):
        for account in (trace / "manifest").glob("*.json"):
            about = short(json.loads(account.read_text()))
            about.update(command=["train"], host="h", launcher_id=1, node={})
            for target in ("manifest", "report"):
                put(target, trace.name, json.dumps(about, separators=(",", ":")))


segments()
journals()
files()
asked()
profiles(sys.argv[1:])
