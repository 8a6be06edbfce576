"""Many small kernels: bad launches each one, fixed launches one graph of them. Finding: launch-bound."""

from simulated import Gpu, variant

STEPS, LAYERS = 600, 40
# So short that no host launches them one by one as fast, and so many that one launch of a graph takes less than they do.
NAMES = ["gemm_spin_ns_200", "bias_spin_ns_200", "relu_spin_ns_200", "norm_spin_ns_200"]

gpu = Gpu("embed_spin_ns_500", *NAMES)
embed, layer = gpu.kernel("embed_spin_ns_500"), [gpu.kernel(name) for name in NAMES]
synchronize = gpu.synchronize()


def forward():
    for _ in range(LAYERS):
        for kernel in layer:
            kernel()


step_of_layers = gpu.graph(forward) if variant() == "fixed" else forward
for step in range(STEPS):
    embed()
    step_of_layers()
    if step % 75 == 74:
        synchronize()
