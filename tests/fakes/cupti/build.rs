//! Gives the library the name that programs ask the loader for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcupti.so.13");
    // Its thread and its exit handler outlive a dlclose, as the vendor's do.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
