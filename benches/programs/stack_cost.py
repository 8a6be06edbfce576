"""stack_cost.py ROUNDS CALLS: ns per cuLaunchKernel of the stub driver, called by ctypes at the end of ten functions."""

import ctypes
import sys
import time

launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]


def measure(calls):
    start = time.perf_counter_ns()
    for _ in range(calls):
        launch(0x5000, 1, 1, 1, 256, 1, 1, 0, 0x77, None, None)
    return (time.perf_counter_ns() - start) / calls


def deep(depth, calls):
    return deep(depth - 1, calls) if depth else measure(calls)


rounds, calls = map(int, sys.argv[1:])
for _ in range(rounds):
    print(f"{deep(8, calls):.2f}")
    time.sleep(0.02)
