"""Code for each shape: bad loads a module in every step, as code that is compiled again for each new shape, fixed loads it once. Finding:
warm-up."""

import ctypes

from simulated import POINTER, Gpu, variant

STEPS = 200
gpu = Gpu("forward_spin_us_500", "backward_spin_us_500")
forward, backward = gpu.kernel("forward_spin_us_500"), gpu.kernel("backward_spin_us_500")
module, image = POINTER(), b"fakecuda:shape_compile_us_2000"
load = gpu.bind("cuModuleLoadData", ctypes.byref(module), image)
synchronize = gpu.synchronize()
for step in range(STEPS):
    if variant() == "bad" or step == 0:
        load()
    forward()
    backward()
    if step % 50 == 49:
        synchronize()
