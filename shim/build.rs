//! Link arguments of the shim.

fn main() {
    // Our own references to exported hooks (the wrapper's address in a hook's row) must mean ours, whatever another
    // preloaded library exports.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgputrace.so");
    // Lazy binding would run the loader's resolver, with its locks, inside a hook.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    // The hooks' code must stay where threads may still be running it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // std is linked for cudarc's types only, and nothing of it is called. Exception tables of its dead code would keep its
    // personality function alive, that its panic handler, and that libgcc_s: another library to load in every child.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap=rust_eh_personality");
    println!("cargo:rerun-if-changed=build.rs");
}
