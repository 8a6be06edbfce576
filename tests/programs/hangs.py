"""Waits for a stream that does nothing until somebody makes a file (tests/programs/odd_driver.c), while another thread waits in
Python: hangs.py. Prints what came before the wait and after it.
"""

import ctypes
import threading

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
over, begun = threading.Event(), threading.Event()


def idle():
    begun.set()
    over.wait()


def step():
    cuda.cuStreamSynchronize(ctypes.c_void_p(0x2A0))  # the line that hangs


def train():
    step()


assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
waiting = threading.Thread(target=idle)
waiting.start()
begun.wait()
print("before", flush=True)
train()
over.set()
waiting.join()
print("after")
