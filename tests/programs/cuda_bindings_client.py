"""A program of NVIDIA's Python bindings: a checked saxpy through cuda.bindings.driver.

usage: cuda_bindings_client.py [driver|runtime]

`driver` allocates, copies, launches by both launch functions, captures and replays a graph, and checks the numbers;
it prints `driver=VERSION launches=13 ok`. The kernels carry the names that the simulated driver computes.
`runtime` prints the result of the first calls of cuda.bindings.runtime, whatever they are: its libcudart wants a
genuine driver, so on the simulated one they show an error, the same with and without a tracer.
"""

import ctypes
import sys


def driver():
    from cuda.bindings import driver as cu

    def ok(answer):
        code, *rest = answer
        if code != cu.CUresult.CUDA_SUCCESS:
            raise SystemExit(f"failed with {code}")
        return rest[0] if len(rest) == 1 else rest

    ok(cu.cuInit(0))
    version = ok(cu.cuDriverGetVersion())
    device = ok(cu.cuDeviceGet(0))
    context = ok(cu.cuDevicePrimaryCtxRetain(device))
    ok(cu.cuCtxSetCurrent(context))
    module = ok(cu.cuModuleLoadData(b"fakecuda:_Z5saxpyifPfS_,spin_us_20"))
    saxpy = ok(cu.cuModuleGetFunction(module, b"_Z5saxpyifPfS_"))
    spin = ok(cu.cuModuleGetFunction(module, b"spin_us_20"))

    n = 1000
    x = (ctypes.c_float * n)(*range(n))
    y = (ctypes.c_float * n)(*([1.0] * n))
    size = ctypes.sizeof(x)
    device_x, device_y = ok(cu.cuMemAlloc(size)), ok(cu.cuMemAlloc(size))
    ok(cu.cuMemcpyHtoD(device_x, ctypes.addressof(x), size))
    ok(cu.cuMemcpyHtoD(device_y, ctypes.addressof(y), size))
    stream = ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
    start, end = ok(cu.cuEventCreate(0)), ok(cu.cuEventCreate(0))

    kinds = (ctypes.c_int, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p)
    arguments = ((n, 2.0, int(device_x), int(device_y)), kinds)
    ok(cu.cuLaunchKernel(saxpy, 8, 1, 1, 128, 1, 1, 0, stream, arguments, 0))
    ok(cu.cuEventRecord(start, stream))
    for _ in range(10):
        ok(cu.cuLaunchKernel(spin, 8, 1, 1, 128, 1, 1, 0, stream, 0, 0))
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 8, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 128, 1, 1
    config.hStream = stream
    ok(cu.cuLaunchKernelEx(config, spin, 0, 0))
    ok(cu.cuEventRecord(end, stream))
    ok(cu.cuStreamSynchronize(stream))
    ms = ok(cu.cuEventElapsedTime(start, end))
    if ms < 0.219:
        raise SystemExit(f"eleven kernels of 20 us took {ms} ms")

    ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    ok(cu.cuLaunchKernel(saxpy, 8, 1, 1, 128, 1, 1, 0, stream, arguments, 0))
    graph = ok(cu.cuStreamEndCapture(stream))
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    for _ in range(2):
        ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuMemcpyDtoHAsync(ctypes.addressof(y), device_y, size, stream))
    ok(cu.cuStreamSynchronize(stream))
    wrong = [i for i in range(n) if y[i] != 1 + 3 * 2 * i]
    if wrong:
        raise SystemExit(f"y[{wrong[0]}] = {y[wrong[0]]}")

    ok(cu.cuGraphExecDestroy(executable))
    ok(cu.cuGraphDestroy(graph))
    ok(cu.cuEventDestroy(start))
    ok(cu.cuEventDestroy(end))
    ok(cu.cuStreamDestroy(stream))
    ok(cu.cuMemFree(device_x))
    ok(cu.cuMemFree(device_y))
    ok(cu.cuModuleUnload(module))
    ok(cu.cuDevicePrimaryCtxRelease(device))
    print(f"driver={version} launches=13 ok")


def runtime():
    from cuda.bindings import runtime as rt

    print("cudaRuntimeGetVersion", *rt.cudaRuntimeGetVersion())
    print("cudaDriverGetVersion", *rt.cudaDriverGetVersion())
    print("cudaGetDeviceCount", *rt.cudaGetDeviceCount())
    print("cudaMalloc", rt.cudaMalloc(4096)[0])


if __name__ == "__main__":
    {"driver": driver, "runtime": runtime}[sys.argv[1] if len(sys.argv) > 1 else "driver"]()
