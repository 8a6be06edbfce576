"""Checks that ELF files run on an old system: check.py GLIBC FILE...

Reads what `objdump -p` says about each file: the symbol versions that it needs, of which none may be newer than GLIBC,
and the libraries. The shim goes into every process and so may need nothing but libc and the loader.
"""

import re
import subprocess
import sys

LIBC = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
OLD_LIBC = LIBC | {"libpthread.so.0", "libdl.so.2", "libm.so.6", "librt.so.1", "libgcc_s.so.1", "libutil.so.1"}


def version(text):
    return tuple(int(part) for part in text.split("."))


def faults(path, newest):
    """Yields a sentence for each thing in the file that an old system does not have."""
    headers = subprocess.run(["objdump", "-p", path], check=True, capture_output=True, text=True).stdout
    needed = set(re.findall(r"^\s+NEEDED\s+(\S+)", headers, re.M))
    versions = set(re.findall(r"\bGLIBC_([0-9.]+)", headers))
    if not needed or not versions:
        yield f"{path}: objdump shows no library or no symbol version"
    allowed = LIBC if "shim" in path else OLD_LIBC
    for library in sorted(needed - allowed):
        yield f"{path}: needs {library}"
    for found in sorted(versions, key=version):
        if version(found) > version(newest):
            yield f"{path}: needs GLIBC_{found}, newer than {newest}"
    print(f"{path}: {', '.join(sorted(needed))}; GLIBC_{max(versions, key=version, default='?')} at most")


def main():
    newest, paths = sys.argv[1], sys.argv[2:]
    found = [fault for path in paths for fault in faults(path, newest)]
    sys.exit("\n".join(found) if found else 0)


main()
