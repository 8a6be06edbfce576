"""Checks the ad-hoc signature of a Mach-O file for arm64, without which its kernel loads nothing.

signature.py FILE: says nothing, or which page of the file is not what was signed (a strip after the linker's work would
do that). Formats: Apple's <mach-o/loader.h> and <kern/cs_blobs.h>.
"""

import hashlib
import struct
import sys

LC_CODE_SIGNATURE = 0x1D
SUPER_BLOB, CODE_DIRECTORY = 0xFADE0CC0, 0xFADE0C02
SHA256 = 2


def command(data: bytes, wanted: int) -> tuple[int, int]:
    """Offset and bytes of what a load command of a 64-bit file points to."""
    count = struct.unpack_from("<I", data, 16)[0]
    at = 32
    for _ in range(count):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == wanted:
            return struct.unpack_from("<II", data, at + 8)
        at += size
    sys.exit("no signature")


def directory(data: bytes, at: int) -> int:
    """Offset of the code directory, the first blob of an ad-hoc signature."""
    magic, _, count = struct.unpack_from(">III", data, at)
    if magic != SUPER_BLOB or count < 1:
        sys.exit("the signature is no blob of blobs")
    found = at + struct.unpack_from(">I", data, at + 16)[0]
    if struct.unpack_from(">I", data, found)[0] != CODE_DIRECTORY:
        sys.exit("the signature has no code directory")
    return found


def main(path: str) -> None:
    data = open(path, "rb").read()
    at, _ = command(data, LC_CODE_SIGNATURE)
    code = directory(data, at)
    hashes, _, _, slots, limit = struct.unpack_from(">IIIII", data, code + 16)
    size, kind, _, page = struct.unpack_from(">BBBB", data, code + 36)
    if limit != at or kind != SHA256 or slots != -(-limit >> page):
        sys.exit(f"the signature is of {limit} bytes in {slots} pages, the file of {at}")
    for slot in range(slots):
        signed = data[code + hashes + slot * size :][:size]
        if hashlib.sha256(data[slot << page : min(limit, (slot + 1) << page)]).digest() != signed:
            sys.exit(f"page {slot} of {slots} is not what was signed")


if __name__ == "__main__":
    main(*sys.argv[1:])
