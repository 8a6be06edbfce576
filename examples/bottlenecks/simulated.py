"""The few driver calls that the programs of this folder make, through ctypes; run by itself it does nothing.

What it hands out are bound functions of the driver's library, so that a call's line is the program's own. Kernels of the
simulated driver say in their name how long they run: `gemm_spin_us_500`. On a real GPU there are no such kernels, and the
programs end with an error that says so.
"""

import ctypes
import functools
import sys
import time

POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t


def checked(result, function, _):
    if result != 0:
        raise RuntimeError(f"{function.__name__} returned {result}")


class Gpu:
    """A context on device 0, its stream, and the given kernels by name."""

    def __init__(self, *kernels):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            sys.exit(f"no simulated driver: {error}; README.md, 'Try it without a GPU', says where it is found")
        context, module, device = POINTER(), POINTER(), ctypes.c_int()
        self.bind("cuInit", 0)()
        self.bind("cuDeviceGet", ctypes.byref(device), 0)()
        self.bind("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)()
        self.bind("cuCtxSetCurrent", context)()
        image = b"fakecuda:" + b",".join(name.encode() for name in kernels)
        try:
            self.bind("cuModuleLoadData", ctypes.byref(module), image)()
        except RuntimeError as error:
            sys.exit(f"this program needs the simulated driver: {error}")
        self.module = module
        self.stream = self.new_stream()

    def bind(self, name, *arguments):
        """The driver's function with these arguments."""
        function = getattr(self.library, name)
        function.errcheck = checked
        return functools.partial(function, *arguments)

    def kernel(self, name, *stream):
        """Launches that kernel, in the stream of its own or another; None is the default stream."""
        function = POINTER()
        self.bind("cuModuleGetFunction", ctypes.byref(function), self.module, name.encode())()
        return self.bind("cuLaunchKernel", function, 8, 1, 1, 256, 1, 1, 0, *(stream or [self.stream]), None, None)

    def new_stream(self, blocking=False):
        stream = POINTER()
        self.bind("cuStreamCreate", ctypes.byref(stream), 0 if blocking else 1)()  # CU_STREAM_NON_BLOCKING
        return stream

    def new_event(self):
        event = POINTER()
        self.bind("cuEventCreate", ctypes.byref(event), 2)()  # CU_EVENT_DISABLE_TIMING
        return event

    def buffer(self, size):
        """Device memory, and what allocates and frees it."""
        address = ctypes.c_uint64()
        return address, self.bind("cuMemAlloc_v2", ctypes.byref(address), SIZE(size)), self.bind("cuMemFree_v2", address)

    def pinned(self, size):
        address = POINTER()
        self.bind("cuMemHostAlloc", ctypes.byref(address), SIZE(size), 0)()
        return address

    def copy_in(self, target, source, size, stream=None):
        return self.bind("cuMemcpyHtoDAsync_v2", target, source, SIZE(size), stream or self.stream)

    def copy_out(self, target, source, size):
        return self.bind("cuMemcpyDtoHAsync_v2", target, source, SIZE(size), self.stream)

    def synchronize(self):
        return self.bind("cuStreamSynchronize", self.stream)

    def copied_ahead(self, buffers, host, size, kernels):
        """The calls of two steps in turn: each copies its batch in a stream of its own while the kernels of the one before run."""
        ahead, turns = self.new_stream(), []
        for buffer in buffers:
            there, used = self.new_event(), self.new_event()
            turns.append((
                self.bind("cuStreamWaitEvent", ahead, used, 0),
                self.copy_in(buffer, host, size, ahead),
                self.bind("cuEventRecord", there, ahead),
                self.bind("cuStreamWaitEvent", self.stream, there, 0),
                *kernels,
                self.bind("cuEventRecord", used, self.stream),
            ))
        return turns

    def graph(self, launches):
        """Launches what `launches` gives the stream, as one graph."""
        graph, executable = POINTER(), POINTER()
        self.bind("cuStreamBeginCapture_v2", self.stream, 1)()
        launches()
        self.bind("cuStreamEndCapture", self.stream, ctypes.byref(graph))()
        self.bind("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))()
        return self.bind("cuGraphLaunch", executable, self.stream)


def host_work(seconds):
    """Keeps the processor busy, as Python code between launches does."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def variant():
    """`bad` or `fixed`, from the command line."""
    if sys.argv[1:] not in (["bad"], ["fixed"]):
        sys.exit(f"usage: {sys.argv[0]} bad|fixed")
    return sys.argv[1]
