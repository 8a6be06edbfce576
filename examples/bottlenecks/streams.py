"""Two kernels of a step that do not need each other: bad gives one to the default stream, fixed each to a stream of its own. Finding:
serialised-streams."""

from simulated import Gpu, variant

STEPS = 200

gpu = Gpu("left_spin_us_600", "right_spin_us_600")
other = None if variant() == "bad" else gpu.new_stream()
one = gpu.new_stream(blocking=True)
left, right = gpu.kernel("left_spin_us_600", one), gpu.kernel("right_spin_us_600", other)
synchronize = gpu.bind("cuCtxSynchronize")
for step in range(STEPS):
    left()
    right()
    if step % 25 == 24:
        synchronize()
