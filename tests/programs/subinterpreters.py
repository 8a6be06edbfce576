"""Waits in subinterpreters, one after the other and in threads at the same time. Prints how many waits were made."""

import ctypes
import sys
import threading

try:
    import _interpreters as interpreters
except ImportError:  # before 3.13
    import _xxsubinterpreters as interpreters

CODE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")

def in_subinterpreter():
    cuda.cuStreamSynchronize(None)

for _ in range(20):
    in_subinterpreter()
"""


def make(config):
    if sys.version_info >= (3, 13):
        return interpreters.create(config)
    return interpreters.create(isolated=False) if sys.version_info >= (3, 10) else interpreters.create()


def run(config="legacy"):
    number = make(config)
    failed = interpreters.run_string(number, CODE)
    if failed is not None:
        raise SystemExit(failed)
    interpreters.destroy(number)


def main():
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    for _ in range(3):
        run()
    made = 3
    if sys.version_info >= (3, 13):  # ctypes is for the main interpreter alone before, where each has its own lock
        threads = [threading.Thread(target=run, args=("isolated",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made += 4
    cuda.cuStreamSynchronize(None)
    print(made * 20 + 1)


main()
