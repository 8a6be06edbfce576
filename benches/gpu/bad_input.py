"""What a program may do to CUDA and CUPTI while its GPU is timed: `python bad_input.py GPUTRACE FOLDER [PARTS [SECONDS]]`.

PARTS, separated by commas (reset,fork,finalize,two,mps): cudaDeviceReset in the midst, three times; a fork after CUDA was initialised, whose child asks the
driver; cuptiFinalize by the program, three times; a gputrace inside a gputrace; and the Multi-Process Service, started for this and ended. Each without gputrace
and under every --gpu-time: the exit code, what the program prints, and what the manifest says. CUDA's runtime and CUPTI are those of PyTorch's wheels, or in the
folder that CUDA_LIBRARIES names.
"""

import ctypes
import glob
import json
import os
import subprocess
import sys
import time

PTX = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n  ret;\n}\n\0"
SHOWN = ("records", "joined", "outside", "without_record", "windows", "detached", "aside", "refused", "given_up", "stays", "violations", "events")


def libraries():
    wheels = [folder for path in sys.path for folder in glob.glob(os.path.join(path, "nvidia", "cu1*", "lib"))]
    return os.environ.get("CUDA_LIBRARIES") or wheels[0]


def loaded(runtime, driver):
    """A kernel that does nothing, in the primary context."""
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    assert runtime.cudaSetDevice(0) == 0 and runtime.cudaFree(None) == 0
    assert driver.cuModuleLoadData(ctypes.byref(module), PTX) == 0 and driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"k") == 0
    return kernel


def worked(driver, kernel, seconds):
    launched, end = 0, time.time() + seconds
    while time.time() < end:
        for _ in range(20):
            assert driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None) == 0
        assert driver.cuCtxSynchronize() == 0
        launched += 20
        time.sleep(0.001)
    return launched


def program(what, seconds):
    library = lambda name: ctypes.CDLL(glob.glob(os.path.join(libraries(), name + ".so.1[0-9]"))[0])  # noqa: E731
    runtime, driver = library("libcudart"), ctypes.CDLL("libcuda.so.1")
    kernel = loaded(runtime, driver)
    launched = worked(driver, kernel, seconds)
    if what == "reset":
        for _ in range(3):
            assert runtime.cudaDeviceReset() == 0
            launched += worked(driver, loaded(runtime, driver), seconds)
    elif what == "fork":
        child = os.fork()
        if child == 0:
            os._exit(7 if driver.cuCtxSynchronize() != 0 else 8)
        launched += worked(driver, kernel, seconds)
        print("the child's exit code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    elif what == "finalize":
        cupti = library("libcupti")
        for _ in range(3):
            print("cuptiFinalize", cupti.cuptiFinalize())
            launched += worked(driver, kernel, seconds)
    else:
        launched += worked(driver, kernel, seconds)
    print("launched", launched)


def ways(gputrace, folder, part, seconds, environment):
    for way in (None, "full", "auto", "windows", "events"):
        trace = os.path.join(folder, f"{part}-{way}")
        command = [sys.executable, os.path.abspath(__file__), "run", part, seconds]
        if way:
            around = [gputrace, "-o", trace, "--gpu-time", way, "--"]
            command = (around + [gputrace, "-o", trace + "-inner", "--gpu-time", way, "--"] if part == "two" else around) + command
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        print(f"{part} {way or 'alone'}: exit {done.returncode}: {' '.join(done.stdout.split())}", flush=True)
        for path in glob.glob(trace + "*/manifest/*.json") if way else []:
            for times in [process["gpu_time"] for process in json.load(open(path))["processes"] if process.get("gpu_time")]:
                print("  ", json.dumps({key: times[key] for key in SHOWN if times.get(key)}), flush=True)


def main():
    gputrace, folder = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    parts = (sys.argv[3:] or ["reset,fork,finalize,two,mps"])[0].split(",")
    seconds = (sys.argv[4:] or ["1"])[0]
    for part in parts:
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries()}
        if part != "mps":
            ways(gputrace, folder, part, seconds, environment)
            continue
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            environment[name] = os.path.join(folder, name.lower())
            os.makedirs(environment[name], exist_ok=True)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True, env=environment)
        try:
            ways(gputrace, folder, part, seconds, environment)
            servers = subprocess.run(["nvidia-cuda-mps-control"], input="get_server_list\n", capture_output=True, text=True, env=environment).stdout
            print("   servers", servers.split())
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=environment)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        program(sys.argv[2], float(sys.argv[3]))
    else:
        main()
