//! The shim as a file: what it links, what it needs of glibc, what it contains and exports.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::util::{repository, shim};

/// The newest glibc symbol version that RHEL 8 and Debian 10 have.
const NEWEST_GLIBC: [u32; 2] = [2, 28];

/// The shim as it is shipped: the release build, which drops what nothing refers to.
fn released() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let built = shim();
        let target = built.parent().and_then(Path::parent).expect("profiles lie in the target folder");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--release", "-p", "gputrace-shim", "--target-dir"]).arg(target);
        let output = cargo.current_dir(repository()).output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target.join("release/libgputrace_shim.so")
    })
}

fn said_by(tool: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(tool).args(arguments).arg(file).output().unwrap_or_else(|e| panic!("{tool}: {e}"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn it_links_libc_only() {
    let dynamic = said_by("readelf", &["-dW"], released());
    let needed: Vec<_> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    let loader = |line: &&str| line.contains("[ld-linux");
    assert!(needed.iter().all(|line| line.contains("[libc.so.6]") || loader(line)), "{needed:?}");
    assert!(!needed.is_empty());
    assert!(dynamic.contains("(SYMBOLIC)") || dynamic.contains("SYMBOLIC"), "{dynamic}");
    assert!(dynamic.contains("NODELETE") && dynamic.contains("NOW"), "{dynamic}");
    assert!(
        !dynamic.contains("TEXTREL") && !dynamic.contains("(RUNPATH)") && !dynamic.contains("(RPATH)"),
        "{dynamic}"
    );
}

#[test]
fn it_needs_no_symbol_newer_than_glibc_2_28() {
    let symbols = said_by("readelf", &["--dyn-syms", "-W"], released());
    let versions = symbols.split_whitespace().filter_map(|word| word.split_once("@GLIBC_").map(|(_, version)| version));
    let mut seen = 0;
    for version in versions {
        let numbers: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
        assert!(numbers[..2] <= NEWEST_GLIBC[..], "GLIBC_{version} in {symbols}");
        seen += 1;
    }
    assert!(seen > 0, "{symbols}");
}

#[test]
fn it_contains_no_panic_and_no_unwinder() {
    let symbols = said_by("nm", &["-a"], released());
    assert!(symbols.lines().count() > 100, "it was stripped: {symbols}");
    for never in
        ["rust_begin_unwind", "begin_panic", "panic_fmt", "panic_bounds_check", "rust_panic", "_Unwind_", "rdl_alloc"]
    {
        let found: Vec<_> = symbols.lines().filter(|line| line.contains(never)).collect();
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn it_exports_hooks_and_its_controls_and_nothing_else() {
    let symbols = said_by("nm", &["-D", "--defined-only"], released());
    let ours = |name: &str| {
        const MEMORY: [&str; 19] = [
            "aligned_alloc",
            "brk",
            "calloc",
            "free",
            "free_aligned_sized",
            "free_sized",
            "malloc",
            "malloc_usable_size",
            "memalign",
            "mmap",
            "mmap64",
            "mremap",
            "munmap",
            "posix_memalign",
            "pvalloc",
            "realloc",
            "reallocarray",
            "sbrk",
            "valloc",
        ];
        const ENDING: [&str; 2] = ["_Exit", "_exit"];
        const LOADER: [&str; 5] = ["dlclose", "dlmopen", "dlopen", "dlsym", "dlvsym"];
        // The linker puts the last one in place of std's: see shim/build.rs.
        const LINKER: &str = "__wrap_rust_eh_personality";
        name == LINKER
            || name.starts_with("cu")
            || name.starts_with("nccl")
            || name.starts_with("gputrace_")
            || name.starts_with("InitializeInjectionNvtx")
            || MEMORY.contains(&name)
            || ENDING.contains(&name)
            || LOADER.contains(&name)
    };
    // Calls that may wait are all libc's, in the versions that libc gives to programs today; but for one of libaio's.
    let libc = said_by("sh", &["-c"], Path::new("cc -print-file-name=libc.so.6"));
    let in_libc = said_by("nm", &["-D", "--defined-only"], Path::new(libc.trim()));
    let in_libc: Vec<&str> = in_libc.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let waits = |name: &str| {
        let (plain, versioned) = (format!("{name}@@"), name.contains("@@"));
        name == "io_getevents@@LIBAIO_0.4"
            || in_libc.iter().any(|known| if versioned { *known == name } else { known.starts_with(&plain) })
    };
    let names = symbols.lines().filter_map(|line| line.split_whitespace().nth(2));
    let others: Vec<_> = names.filter(|name| !ours(name) && !waits(name)).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn a_function_of_two_versions_is_hooked_in_one() {
    let symbols = said_by("nm", &["-D", "--defined-only"], released());
    let versions: Vec<&str> =
        symbols.lines().filter_map(|l| l.split_whitespace().nth(2)?.split_once('@')).map(|v| v.1).collect();
    assert!(versions.iter().all(|version| version.starts_with('@')), "{versions:?}");
    let waits = if cfg!(target_arch = "x86_64") { 3 } else { 1 };
    assert_eq!(versions.len(), waits, "{versions:?}");
}

#[test]
fn its_thread_local_memory_is_where_no_allocation_is_needed() {
    // __tls_get_addr would allocate on first use, inside malloc.
    let symbols = said_by("readelf", &["--dyn-syms", "-W"], released());
    assert!(!symbols.contains("__tls_get_addr"), "{symbols}");
    let dynamic = said_by("readelf", &["-dW"], released());
    assert!(dynamic.contains("STATIC_TLS"), "{dynamic}");
}
