"""A training loop on the simulated driver that does all that examples/queries.sql asks about: training.py FOLDER.

FOLDER holds examples/bottlenecks/simulated.py.
"""

import ctypes
import sys

sys.path.insert(0, sys.argv[1])
from simulated import Gpu, host_work  # noqa: E402

KERNELS = ["forward_spin_us_300", "backward_spin_us_200", "ncclDevKernel_AllReduce_spin_us_100"]
BYTES = 1 << 20

gpu = Gpu(*KERNELS)
kernels = [gpu.kernel(name) for name in KERNELS]
batch, allocate, _ = gpu.buffer(BYTES)
allocate()
loss, allocate, _ = gpu.buffer(4)
allocate()
scratch, allocate, free = gpu.buffer(3 * BYTES)
load = gpu.copy_in(batch, ctypes.create_string_buffer(BYTES), BYTES)
read, synchronize = gpu.copy_out(gpu.pinned(4), loss, 4), gpu.synchronize()


def train():
    for step in range(30):
        load()
        for kernel in kernels:
            kernel()
        read()
        synchronize()
        host_work(0.0005)
        if step % 10 == 0:
            allocate()
            free()


train()
