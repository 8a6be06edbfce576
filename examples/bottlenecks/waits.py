"""A loss that is read: bad in every step, fixed every 50 steps. Finding: wait-every-step."""

import ctypes

from simulated import Gpu, host_work, variant

STEPS = 200
EVERY = 1 if variant() == "bad" else 50

gpu = Gpu("forward_spin_us_1000", "backward_spin_us_1000")
forward, backward = gpu.kernel("forward_spin_us_1000"), gpu.kernel("backward_spin_us_1000")
loss, allocate, _ = gpu.buffer(4)
allocate()
item, synchronize = gpu.copy_out(ctypes.create_string_buffer(4), loss, 4), gpu.synchronize()
for step in range(STEPS):
    forward()
    backward()
    if step % EVERY == EVERY - 1:
        item()
        synchronize()
    host_work(0.0008)  # bookkeeping, logging
