//! Link arguments of the shim, and whether this machine's linker can give its exports a symbol version.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

/// The versions that `src/interpose/versions.rs` exports. zig's linker takes this file in place of rustc's list of exports,
/// without which all of std would be exported and kept, and its panic handler would ask for libraries: so what is Rust's own
/// stays inside by its name.
const VERSIONS: &str = "GLIBC_2.3.2 { local: _R*; _ZN*; __rust*; rust_*; };\nLIBAIO_0.4 { };\n";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(versioned_exports)");
    match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        // The loader finds it by the path that it is told, whatever this says: no folder of the machine that built it.
        // Clang and lld both know the option.
        Ok("macos") => {
            println!("cargo:rustc-cdylib-link-arg=-install_name");
            println!("cargo:rustc-cdylib-link-arg=@rpath/libgputrace_shim.dylib");
        }
        _ => linux(),
    }
}

fn linux() {
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
    match with_versions() {
        Some(map) => {
            println!("cargo:rustc-cfg=versioned_exports");
            println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", map.display());
        }
        None if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|processor| processor == "x86_64") => println!(
            "cargo:warning=this linker gives no export a version beside rustc's list (lld does): waits in \
             pthread_cond_wait will not be seen"
        ),
        // Elsewhere there is one version of all but libaio's functions.
        None => {}
    }
}

/// The file of versions, if a library with an export of its own version links, as the shim will be linked.
fn with_versions() -> Option<PathBuf> {
    const PROBE: &str = "#![no_std]
        #[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }
        core::arch::global_asm!(\".symver probe, versioned@@GLIBC_2.3.2\");
        #[unsafe(no_mangle)] pub extern \"C\" fn probe() {}";
    let out = PathBuf::from(env::var_os("OUT_DIR")?);
    let (map, source) = (out.join("versions.map"), out.join("probe.rs"));
    fs::write(&map, VERSIONS).ok()?;
    fs::write(&source, PROBE).ok()?;
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    rustc.args(["--edition=2024", "--crate-type=cdylib", "-Cpanic=abort", "-Clink-arg=-nostdlib"]);
    rustc.arg(format!("-Clink-arg=-Wl,--version-script={}", map.display()));
    rustc.args(["--target", &env::var("TARGET").ok()?]);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={}", linker.display()));
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    rustc.arg(&source).arg("-o").arg(out.join("libprobe.so")).stdout(Stdio::null()).stderr(Stdio::null());
    rustc.status().is_ok_and(|status| status.success()).then_some(map)
}
