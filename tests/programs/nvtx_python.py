"""Names ranges with NVIDIA's own nvtx package and libraries, and prints what the calls returned and what it did.

usage: nvtx_python.py
"""

import ctypes
import glob
import json
import os
import sys
import threading

import nvtx

done = {}


def did(name, times=1):
    done[name] = done.get(name, 0) + times


@nvtx.annotate("decorated", color="blue", domain="package", category="functions", payload=7)
def work():
    did("decorated")


def with_the_package():
    nvtx.push_range("pushed", color="red", category="plain", payload=2.5)
    nvtx.mark("marked", domain="package")
    nvtx.pop_range()
    for _ in range(10):
        work()
    with nvtx.annotate("with", domain="other"):
        ids = nvtx.start_range("crossing", color="green", domain="package")
        thread = threading.Thread(target=nvtx.end_range, args=(ids,))
        thread.start()
        thread.join()
    domain = nvtx.get_domain("fast")
    attributes = domain.get_event_attributes(message="fast", color="orange", payload=-3)
    for _ in range(1000):
        domain.push_range(attributes)
        domain.pop_range()
    for name, times in [("pushed", 1), ("marked", 1), ("with", 1), ("crossing", 1), ("fast", 1000)]:
        did(name, times)


def with_a_library(name):
    found = glob.glob(os.path.join(sys.prefix, "lib", "python3*", "site-packages", "nvidia", "*", "lib", name))
    if not found:
        print("no", name)
        return
    library = ctypes.CDLL(found[0])
    library.nvtxRangeStartA.restype = ctypes.c_uint64
    library.nvtxRangeEnd.argtypes = [ctypes.c_uint64]
    levels = [library.nvtxRangePushA(name.encode()), library.nvtxRangePushW("breit \u00e4"), library.nvtxRangePop()]
    levels.append(library.nvtxRangePop())
    number = library.nvtxRangeStartA(b"numbered")
    library.nvtxMarkA(b"library mark")
    library.nvtxRangeEnd(number)
    print(name, levels)
    for what in [name, "breit \u00e4", "numbered", "library mark"]:
        did(what)


with_the_package()
with_a_library("libnvToolsExt.so.1")
with_a_library("libnvtx3interop.so.1")
print(json.dumps(done, sort_keys=True))
