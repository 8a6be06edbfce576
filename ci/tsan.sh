#!/bin/bash
# The ring's tests under ThreadSanitizer, where a nightly toolchain is installed; says so where none is.
#
# The standard library that comes with the toolchain is not instrumented (building it needs the rust-src component).
# That is enough here: the tests' own accesses are, and so are thread creation and join. What is left out by name is
# the channel over which the test harness reports its results: its two ends are instrumented, its middle is not.
set -eu
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
toolchain=$(rustup toolchain list 2>/dev/null | sed -n 's/^\(nightly[^ ]*\).*/\1/p' | head -n 1)
if [ -z "$toolchain" ]; then
    echo "ThreadSanitizer: skipped, no nightly toolchain is installed"
    exit 0
fi
if ! ls "$(rustc "+$toolchain" --print sysroot)/lib/rustlib/$host/lib/"*_rt.tsan.a >/dev/null 2>&1; then
    echo "ThreadSanitizer: skipped, $toolchain has no sanitizer runtime for $host"
    exit 0
fi

suppressions=$(mktemp)
trap 'rm -f "$suppressions"' EXIT
echo "race:test::event::CompletedTest" > "$suppressions"
export TSAN_OPTIONS="suppressions=$suppressions"
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan"
cargo "+$toolchain" test --locked -p gputrace-abi --target "$host" --test threads
