"""endings.py LIBRARY: waits while threads end and while the interpreter does; see late_waits.c. Prints how many threads ended."""

import atexit
import ctypes
import sys
import threading
import time

cuda = ctypes.CDLL("libcuda.so.1")
late = ctypes.CDLL(sys.argv[1])
address = ctypes.cast(cuda.cuStreamSynchronize, ctypes.c_void_p)
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0


def wait():
    cuda.cuStreamSynchronize(None)


def ends():
    wait()
    late.arm(address)


def goes_on():
    while True:
        wait()


class Last:
    def __del__(self):
        wait()


threads = [threading.Thread(target=ends) for _ in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(threads))
last = Last()
last.itself = last
atexit.register(wait)
for _ in range(3):
    threading.Thread(target=goes_on, daemon=True).start()
time.sleep(0.01)
