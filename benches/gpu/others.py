"""JAX, CuPy and Triton: a small computation whose result is checked. others.py jax|cupy|triton"""

import sys


def with_jax():
    import jax
    import jax.numpy as jnp

    step = jax.jit(lambda x: jnp.tanh(x @ x).sum())
    x = jnp.full((512, 512), 1e-3)
    total = sum(float(step(x)) for _ in range(20))
    expected = 20 * 512 * 512 * float(jnp.tanh(512e-6))
    return abs(total - expected) < 1e-2 * expected


def with_cupy():
    import cupy

    x = cupy.arange(1 << 20, dtype=cupy.float32)
    square = cupy.RawKernel(
        'extern "C" __global__ void square(float *x, int n) {'
        " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }", "square")
    x[:] = 3
    for _ in range(2):
        square((4096,), (256,), (x, cupy.int32(1 << 20)))
    return float(x[12345]) == 81.0 and int(cupy.asnumpy(x).sum()) == 81 << 20


def with_triton():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

    x, y = torch.rand(100_000, device="cuda"), torch.rand(100_000, device="cuda")
    out = torch.empty_like(x)
    for _ in range(50):
        add[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return bool(torch.equal(out, x + y))


if __name__ == "__main__":
    right = {"jax": with_jax, "cupy": with_cupy, "triton": with_triton}[sys.argv[1]]()
    print(f"{sys.argv[1]}: {'RIGHT' if right else 'WRONG'}", flush=True)
    sys.exit(0 if right else 1)
