"""Batches that take as long to load as to use: bad loads each when it is needed, fixed has threads that load ahead, as a DataLoader
with workers does. Finding: system-waits."""

import queue
import threading
import time

from simulated import Gpu, variant

STEPS, WORKERS = 200, 4

gpu = Gpu("forward_spin_us_1000", "backward_spin_us_1000")
forward, backward = gpu.kernel("forward_spin_us_1000"), gpu.kernel("backward_spin_us_1000")
synchronize = gpu.synchronize()


def load():
    time.sleep(0.003)  # a file


def loaded_ahead():
    ready = queue.Queue(8)

    def work():
        for _ in range(STEPS // WORKERS):
            load()
            ready.put(None)

    for _ in range(WORKERS):
        threading.Thread(target=work, daemon=True).start()
    return ready.get


batch = load if variant() == "bad" else loaded_ahead()
for step in range(STEPS):
    batch()
    forward()
    backward()
    if step % 50 == 49:
        synchronize()
