//! Gives the library the name that programs ask the loader for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its threads and exit handler outlive a dlclose, as the vendor's do.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
