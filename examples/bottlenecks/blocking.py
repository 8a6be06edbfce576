"""A batch in by a function that blocks: bad uses cuMemcpyHtoD, which waits for the kernels before it and for the copy; fixed uses
cuMemcpyHtoDAsync, in a stream of its own, a step ahead. Finding: sync-copies."""

import ctypes

from simulated import POINTER, Gpu, variant

STEPS, BYTES = 100, 8 << 20

gpu = Gpu("forward_spin_us_1000", "backward_spin_us_1000")
gpu.bind("cuStreamCreate", ctypes.byref(blocking := POINTER()), 0)()  # CU_STREAM_DEFAULT: copies of the null stream wait for it
gpu.stream = blocking
forward, backward = gpu.kernel("forward_spin_us_1000"), gpu.kernel("backward_spin_us_1000")
(first, allocate_first, _), (second, allocate_second, _) = gpu.buffer(BYTES), gpu.buffer(BYTES)
allocate_first()
allocate_second()
host, synchronize = gpu.pinned(BYTES), gpu.synchronize()
if variant() == "bad":
    copy = gpu.bind("cuMemcpyHtoD_v2", first, host, ctypes.c_size_t(BYTES))
    for step in range(STEPS):
        copy()
        forward()
        backward()
else:
    turns = gpu.copied_ahead((first, second), host, BYTES, (forward, backward))
    for step in range(STEPS):
        for call in turns[step % 2]:
            call()
synchronize()
