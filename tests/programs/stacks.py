"""Waits in many places, each with what Python itself says about the stack: tests/stacks.rs compares the trace with it.

Prints a line of JSON for each wait, in their order: the scenario, the thread, and the frames, innermost first.
With ALLOCATE in the environment a block is allocated before each wait, whose bytes and stack the line tells instead.
"""

import asyncio
import ctypes
import functools
import gc
import json
import os
import sys
import threading

DEPTH = 1024 if "ALLOCATE" in os.environ else 128
cuda = ctypes.CDLL("libcuda.so.1")  # calls release the GIL
held = ctypes.PyDLL("libcuda.so.1")  # calls keep it
function = ctypes.c_void_p()
scenario = ""
lines = []
output = threading.Lock()
blocks = []
QUALIFIED = hasattr((lambda: 0).__code__, "co_qualname")


def ok(result):
    if result != 0:
        raise SystemExit("the driver says %d in %s" % (result, scenario))


def prepare():
    context, module = ctypes.c_void_p(), ctypes.c_void_p()
    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))
    ok(cuda.cuModuleLoadData(ctypes.byref(module), b"fakecuda:spin_us_300"))
    ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"spin_us_300"))
    return context


def frames(frame):
    while frame is not None:
        code = frame.f_code
        yield [code.co_qualname if QUALIFIED else code.co_name, code.co_filename, frame.f_lineno]
        frame = frame.f_back


def launch():
    ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))


def expect(frame):
    """What Python says about the caller's stack, for a wait on the same line."""
    launch()
    line = {"scenario": scenario, "thread": threading.get_native_id()}
    with output:
        if "ALLOCATE" in os.environ:
            line["bytes"] = 1000000 + 1000 * len(lines)
            line["stack"], block = list(frames(sys._getframe())), bytearray(line["bytes"])
            blocks.append(block)
        else:
            line["stack"] = list(frames(frame))
        lines.append(line)


def wait(sync=cuda.cuStreamSynchronize):
    expect(sys._getframe()); ok(sync(None))


def nested():
    def inner(depth):
        if depth == 0:
            wait()
        else:
            inner(depth - 1)

    inner(3)
    inner(1)


class Methods:
    def method(self):
        wait()
        self.static()

    @staticmethod
    def static():
        wait()

    @property
    def value(self):
        wait()
        return 1

    def __getitem__(self, key):
        (lambda: wait())()
        return key


def methods():
    it = Methods()
    it.method()
    it.value
    it[0]
    functools.partial(it.method)()
    [wait() for _ in range(2)]

    class Body:
        wait()


def generator():
    def numbers():
        yield 1
        wait()
        yield from more()

    def more():
        yield 2
        wait()

    list(numbers())


def coroutines():
    async def inner():
        await asyncio.sleep(0)
        wait()

    async def outer():
        await asyncio.gather(inner(), inner())
        async for _ in count():
            await inner()

    async def count():
        yield 1
        wait()

    asyncio.run(outer())


def gil_is_held():
    wait(held.cuStreamSynchronize)


def executed():
    exec("wait()\n\n\nwait()", globals())
    eval("wait()", globals())
    exec(compile("def f():\n    wait()\n\n\nf()", "/no/such/file.py", "exec"), globals())


def executed_again_and_again():
    # Each code object dies, and its successor may stand at its address, with the same name and file.
    for blank in range(30):
        exec("\n" * blank + "wait()", globals())


def names():
    for name in ["f" * 900, "f" * 3000, "\u00e9t\u00e9", "\u0444\u0443\u043d\u043a\u0446\u0438\u044f", "\U00020000"]:
        exec(compile("def %s():\n  wait()\n%s()" % (name, name), "/tmp/%s.py" % name[:100], "exec"), globals())


def long_function():
    body = "".join("    x = (%d +\n         %d)\n" % (n, n) for n in range(6000))
    exec("def long(x):\n    wait()\n%s    wait()\n    return wait(\n    )\nlong(0)" % body, globals())


def multiple_lines():
    ok(
        0
        or wait()
        or sum(
            [
                1,
                wait() or -1,
            ]
        )
    )
    for _ in range(2): wait()
    try:
        raise ValueError
    except ValueError:
        wait()
    finally:
        wait()


def recursion(depth=300):
    if depth == 0:
        wait()
    else:
        recursion(depth - 1)


def callbacks():
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def order(a, b):
        wait()
        return 0

    array = (ctypes.c_int * 2)()
    ctypes.CDLL(None).qsort(array, 2, 4, compare(order))
    sorted([1, 2], key=lambda _: wait() or 0)
    list(map(lambda _: wait(), [1]))

    class Dies:
        def __del__(self):
            wait()

    Dies()
    cycle = Dies()
    cycle.cycle = cycle
    del cycle
    gc.collect()


def traced():
    def trace(frame, event, argument):
        return trace

    sys.settrace(trace)
    wait()
    sys.settrace(None)
    sys.setprofile(lambda *_: None)
    wait()
    sys.setprofile(None)


def in_threads(context):
    def work(n):
        ok(cuda.cuCtxSetCurrent(context))
        for _ in range(3):
            other(n)

    def other(n):
        if n % 2:
            wait()
        else:
            wait(held.cuStreamSynchronize)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def forked():
    # The child has a segment of its own, in which no stack is known yet.
    pid = os.fork()
    if pid == 0:
        wait()
        os._exit(0)
    os.waitpid(pid, 0)
    wait()


def greenlets():
    try:
        import greenlet
    except ImportError:
        return

    def one():
        wait()
        second.switch()
        wait()

    def two():
        wait()
        first.switch()

    def deep(n):
        if n:
            deep(n - 1)
        else:
            wait()
            first.switch()

    first, second = greenlet.greenlet(one), greenlet.greenlet(two)
    first.switch()
    wait()
    first = greenlet.getcurrent()
    greenlet.greenlet(lambda: deep(20)).switch()
    wait()


def main():
    global scenario
    context = prepare()
    wanted = sys.argv[1:]
    for step in [
        nested,
        methods,
        generator,
        coroutines,
        gil_is_held,
        executed,
        executed_again_and_again,
        names,
        long_function,
        multiple_lines,
        recursion,
        callbacks,
        traced,
        functools.partial(in_threads, context),
        greenlets,
    ]:
        scenario = getattr(step, "__name__", "in_threads")
        if not wanted or scenario in wanted:
            step()
    for line in lines:
        line["stack"], line["cut"] = line["stack"][:DEPTH], len(line["stack"]) > DEPTH
        print(json.dumps(line))


main()
