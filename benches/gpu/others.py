"""A small computation with each of several libraries, whose result is checked: others.py NAME

NAME is one of the keys of LIBRARIES below. Prints RIGHT, WRONG or "not installed"; exits 1 when it is wrong.
"""

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


def with_numba():
    import numpy

    # numba-cuda asks for it while it is imported; numpy 2.4 no longer has it.
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
    from numba import cuda

    @cuda.jit
    def double(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    x = cuda.to_device(numpy.arange(10_000, dtype=numpy.float32))
    for _ in range(5):
        double[40, 256](x)
    return bool((x.copy_to_host() == 32 * numpy.arange(10_000, dtype=numpy.float32)).all())


def with_cuda_python():
    import ctypes

    try:
        from cuda.bindings import driver
    except ImportError:
        from cuda import cuda as driver

    def call(function, *arguments):
        error, *values = function(*arguments)
        assert int(error) == 0, (function.__name__, error)
        return values[0] if values else None

    call(driver.cuInit, 0)
    context = call(driver.cuDevicePrimaryCtxRetain, call(driver.cuDeviceGet, 0))
    call(driver.cuCtxSetCurrent, context)
    memory, host = call(driver.cuMemAlloc, 4096), (ctypes.c_ubyte * 4096)()
    call(driver.cuMemsetD8, memory, 7, 4096)
    call(driver.cuMemcpyDtoH, ctypes.addressof(host), memory, 4096)
    call(driver.cuMemFree, memory)
    return bytes(host) == bytes([7]) * 4096


def with_onnxruntime():
    import numpy
    import onnxruntime
    from onnx import TensorProto, helper

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise ImportError("onnxruntime without CUDA")
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64])
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "g", [value("a"), value("b")], [value("c")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CUDAExecutionProvider"])
    a, b = numpy.random.rand(2, 64, 64).astype(numpy.float32)
    return bool(numpy.allclose(session.run(None, {"a": a, "b": b})[0], a @ b, rtol=1e-2))


LIBRARIES = {
    "jax": with_jax,
    "cupy": with_cupy,
    "triton": with_triton,
    "numba": with_numba,
    "cuda_python": with_cuda_python,
    "onnxruntime": with_onnxruntime,
}

if __name__ == "__main__":
    try:
        verdict = "RIGHT" if LIBRARIES[sys.argv[1]]() else "WRONG"
    except ImportError as error:
        verdict = f"not installed ({error})"
    print(f"{sys.argv[1]}: {verdict}", flush=True)
    sys.exit(verdict == "WRONG")
