"""Batches in: bad copies pageable memory in the stream of the kernels, fixed pinned memory in a stream of its own, a step ahead.
Finding: pageable-copies."""

import ctypes

from simulated import Gpu, variant

STEPS, BYTES = 100, 8 << 20

NAMES = [f"layer_{number}_spin_us_200" for number in range(16)]

gpu = Gpu(*NAMES)
layers = [gpu.kernel(name) for name in NAMES]
(first, allocate_first, _), (second, allocate_second, _) = gpu.buffer(BYTES), gpu.buffer(BYTES)
allocate_first()
allocate_second()
synchronize = gpu.synchronize()
if variant() == "bad":
    copy = gpu.copy_in(first, ctypes.create_string_buffer(BYTES), BYTES)
    for step in range(STEPS):
        copy()
        for layer in layers:
            layer()
else:
    turns = gpu.copied_ahead((first, second), gpu.pinned(BYTES), BYTES, layers)
    for step in range(STEPS):
        for call in turns[step % 2]:
            call()
synchronize()
