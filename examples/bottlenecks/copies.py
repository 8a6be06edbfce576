"""Batches of pinned memory in: bad copies in the stream of the kernels, whose host never waits, fixed in a stream of its own, a step
ahead. Finding: exposed-copies."""

from simulated import Gpu, variant

STEPS, BYTES = 60, 16 << 20

NAMES = [f"layer_{number}_spin_us_250" for number in range(8)]

gpu = Gpu(*NAMES)
layers = [gpu.kernel(name) for name in NAMES]
(first, allocate_first, _), (second, allocate_second, _) = gpu.buffer(BYTES), gpu.buffer(BYTES)
allocate_first()
allocate_second()
host, synchronize = gpu.pinned(BYTES), gpu.synchronize()
if variant() == "bad":
    copy = gpu.copy_in(first, host, BYTES)
    for step in range(STEPS):
        copy()
        for layer in layers:
            layer()
else:
    turns = gpu.copied_ahead((first, second), host, BYTES, layers)
    for step in range(STEPS):
        for call in turns[step % 2]:
            call()
synchronize()
