//! Gives the library the name that programs ask the loader for, and its symbolic variant (the package
//! fake-cuda-symbolic, which shares these sources) its own bindings.

fn main() {
    println!("cargo:rerun-if-changed={}/../cuda/build.rs", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its threads and its exit handler outlive a dlclose, as the vendor's do.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    if env!("CARGO_PKG_NAME") == "fake-cuda-symbolic" {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    }
}
