"""Many small kernels: bad launches each one, fixed launches one graph of them. Finding: launch-bound."""

from simulated import Gpu, variant

STEPS, LAYERS = 200, 40
NAMES = ["gemm_spin_us_1", "bias_spin_us_1", "relu_spin_us_1", "norm_spin_us_1"]

gpu = Gpu("embed_spin_us_3", *NAMES)
embed, layer = gpu.kernel("embed_spin_us_3"), [gpu.kernel(name) for name in NAMES]
synchronize = gpu.synchronize()


def forward():
    for _ in range(LAYERS):
        for kernel in layer:
            kernel()


step_of_layers = gpu.graph(forward) if variant() == "fixed" else forward
for step in range(STEPS):
    embed()
    step_of_layers()
    if step % 25 == 24:
        synchronize()
