"""Statistics of each step on the host: bad computes them in every step, fixed in every 20th. Finding: host-work."""

from simulated import Gpu, host_work, variant

STEPS = 200
EVERY = 1 if variant() == "bad" else 20

gpu = Gpu("forward_spin_us_700", "backward_spin_us_700")
forward, backward = gpu.kernel("forward_spin_us_700"), gpu.kernel("backward_spin_us_700")
synchronize = gpu.synchronize()
for step in range(STEPS):
    forward()
    backward()
    if step % EVERY == 0:
        host_work(0.003)
    if step % 50 == 49:
        synchronize()
