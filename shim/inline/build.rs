//! Link arguments of the engine.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgputrace-inline.so");
    // The loader's lock is held where this code runs: nothing may be looked up then.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    // What was patched leads into trampolines that are this library's.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
