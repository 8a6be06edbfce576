"""Shuts its memory against others, waits for a moment in one function and until somebody makes a file in another: hangs_shut.py."""

import ctypes

PR_SET_DUMPABLE = 4
assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
moment = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: ctypes.CDLL(None).usleep(50000))


def earlier():
    cuda.cuCtxSynchronize()


def hang():
    cuda.cuStreamSynchronize(ctypes.c_void_p(0x2A0))


assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
cuda.oddDriverCalls(moment, None)
earlier()
hang()
print("after")
