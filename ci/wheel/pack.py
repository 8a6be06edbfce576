"""Packs the built files into a wheel: pack.py FOLDER PLATFORM OUT. Prints the wheel's path.

The binary goes to the environment's bin/, the libraries to its lib/gputrace/, where the binary looks for them
(../lib/gputrace from itself). There is no Python module. The same files make the same wheel, byte for byte.
"""

import base64
import hashlib
import os
import pathlib
import sys
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXECUTABLE, PLAIN = 0o100755, 0o100644

METADATA = """\
Metadata-Version: 2.1
Name: gputrace
Version: {version}
Summary: {summary}
License: {license}
Requires-Python: >=3
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: gputrace ci/wheel/pack.py
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def contents(built, platform, version):
    """Yields (path in the wheel, bytes, mode), the metadata last as wheels have it."""
    data, info = f"gputrace-{version}.data", f"gputrace-{version}.dist-info"
    yield f"{data}/scripts/gputrace", (built / "gputrace").read_bytes(), EXECUTABLE
    for library in ("libgputrace_shim.so", "libgputrace_inline.so", "libfake_cuda.so", "libfake_cupti.so"):
        yield f"{data}/data/lib/gputrace/{library}", (built / library).read_bytes(), EXECUTABLE
    for name in sorted(path.name for path in ROOT.glob("LICENSE-*")):
        yield f"{info}/licenses/{name}", (ROOT / name).read_bytes(), PLAIN
    package = tomllib.loads((ROOT / "Cargo.toml").read_text())
    metadata = METADATA.format(
        version=version,
        summary=package["package"]["description"],
        license=package["workspace"]["package"]["license"],
        readme=(ROOT / "README.md").read_text(),
    )
    yield f"{info}/METADATA", metadata.encode(), PLAIN
    yield f"{info}/WHEEL", WHEEL.format(platform=platform).encode(), PLAIN


def main():
    built, platform, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"gputrace-{version}-py3-none-{platform}.whl"
    record = []
    with zipfile.ZipFile(path.with_suffix(".part"), "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(name, content, mode):
            entry = zipfile.ZipInfo(name)  # dated 1980: no time of the build
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)

        for name, content, mode in contents(built, platform, version):
            add(name, content, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")
        name = f"gputrace-{version}.dist-info/RECORD"
        add(name, "".join([*record, f"{name},,\n"]).encode(), PLAIN)
    os.replace(path.with_suffix(".part"), path)
    print(path)


main()
