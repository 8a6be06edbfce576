"""A training loop to trace: `gputrace -- python examples/train.py`.

With PyTorch and a GPU it trains a small network. Without them it makes the driver calls of the same loop on the
simulated driver and says so; README.md, "Try it without a GPU", says how it finds that driver.
"""

import ctypes
import sys

STEPS = 200


def with_torch(torch):
    """Two layers, AdamW, and a loss that is read in every step: the wait that the report should find."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss = None
    for step in range(STEPS):
        inputs = torch.randn(64, 256).cuda()
        labels = torch.randint(0, 10, (64,)).cuda()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
        else:
            loss.item()
    print(f"trained {STEPS} steps on {torch.cuda.get_device_name()}")


class Driver:
    """The CUDA driver through ctypes; every call is checked."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            result = function(*arguments)
            if result != 0:
                raise RuntimeError(f"{name} returned {result}")

        return call


def with_driver(driver):
    """The same loop as driver calls: a batch in, kernels, a wait for the loss, kernels of the optimizer."""
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    device, context, module, batch = ctypes.c_int(), pointer(), pointer(), ctypes.c_uint64()
    driver.cuInit(0)
    driver.cuDeviceGet(ctypes.byref(device), 0)
    name = ctypes.create_string_buffer(100)
    driver.cuDeviceGetName(name, 100, device)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    driver.cuCtxSetCurrent(context)
    driver.cuModuleLoadData(ctypes.byref(module), b"fakecuda:linear_spin_us_20,relu_spin_us_5,adamw_spin_us_8")
    kernels = {}
    for kernel in (b"linear_spin_us_20", b"relu_spin_us_5", b"adamw_spin_us_8"):
        kernels[kernel] = pointer()
        driver.cuModuleGetFunction(ctypes.byref(kernels[kernel]), module, kernel)
    bytes_ = 64 * 256 * 4
    host, loss = ctypes.create_string_buffer(bytes_), ctypes.create_string_buffer(4)
    driver.cuMemAlloc_v2(ctypes.byref(batch), size(bytes_))

    def launch(kernel):
        driver.cuLaunchKernel(kernels[kernel], 8, 1, 1, 256, 1, 1, 0, None, None, None)

    for _ in range(STEPS):
        driver.cuMemcpyHtoDAsync_v2(batch, host, size(bytes_), None)
        for kernel in (b"linear_spin_us_20", b"relu_spin_us_5", b"linear_spin_us_20") * 3:
            launch(kernel)
        driver.cuMemcpyDtoHAsync_v2(loss, batch, size(4), None)
        driver.cuStreamSynchronize(None)
        for _ in range(8):
            launch(b"adamw_spin_us_8")
    driver.cuCtxSynchronize()
    driver.cuMemFree_v2(batch)
    print(f"no PyTorch with CUDA here: made the driver calls of {STEPS} steps on {name.value.decode()}")


def main():
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None and torch.cuda.is_available():
        return with_torch(torch)
    try:
        driver = Driver()
    except OSError as error:
        sys.exit(f"train.py: neither PyTorch with a GPU nor a CUDA driver, not even the simulated one: {error}")
    return with_driver(driver)


if __name__ == "__main__":
    main()
