"""A buffer for each step: bad allocates and frees it, and the free waits for the GPU; fixed keeps one. Finding: hidden-waits."""

from simulated import Gpu, host_work, variant

STEPS, BYTES = 200, 1 << 20
IN_LOOP = variant() == "bad"

gpu = Gpu("forward_spin_us_1000", "backward_spin_us_1000")
forward, backward = gpu.kernel("forward_spin_us_1000"), gpu.kernel("backward_spin_us_1000")
_, allocate, free = gpu.buffer(BYTES)
synchronize = gpu.synchronize()
if not IN_LOOP:
    allocate()
for step in range(STEPS):
    if IN_LOOP:
        allocate()
    forward()
    backward()
    if IN_LOOP:
        free()
    host_work(0.0008)
    if step % 50 == 49:
        synchronize()
