//! Finds the shim, the library that is loaded into the target, and the engine of inline hooks.
//!
//! Installed, it lies beside the executable or in `../lib/gputrace`; in a build folder it lies beside the executable
//! or in `deps`, which is also where tests find it. The simulated driver and the stand-in for CUPTI are looked for in the same places.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// File name of the shim.
pub(crate) const SHIM: &str = if cfg!(target_os = "macos") { "libgputrace_shim.dylib" } else { "libgputrace_shim.so" };
/// File name of the engine of inline hooks.
pub(crate) const ENGINE: &str = "libgputrace_inline.so";
/// File name of the simulated driver.
pub(crate) const FAKE_DRIVER: &str = "libfake_cuda.so";
/// File name of the stand-in for CUPTI beside it.
pub(crate) const FAKE_CUPTI: &str = "libfake_cupti.so";

/// The first file called `name` in the places above. Err: where it was looked for, as the end of `NAME is `.
pub(crate) fn find_library(name: &str) -> Result<PathBuf, String> {
    match own_path() {
        Some(exe) => find_beside(&exe, name).map_err(|places| format!("not in {}", places_text(&places))),
        None => Err("not found, as /proc is hidden and does not say where gputrace lies".to_owned()),
    }
}

/// This executable. Where /proc is hidden, the kernel has told us at the start by which path it ran us.
pub(crate) fn own_path() -> Option<PathBuf> {
    std::env::current_exe().ok().or_else(|| Path::new(OsStr::from_bytes(started_as()?)).canonicalize().ok())
}

#[cfg(target_os = "linux")]
fn started_as() -> Option<&'static [u8]> {
    // SAFETY: the kernel put a string there that ends in a nul byte and lives as long as the process; else it is 0.
    unsafe {
        let text = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        (!text.is_null()).then(|| std::ffi::CStr::from_ptr(text).to_bytes())
    }
}

/// The loader of macOS knows it always.
#[cfg(target_os = "macos")]
fn started_as() -> Option<&'static [u8]> {
    None
}

fn find_beside(exe: &Path, name: &str) -> Result<PathBuf, Vec<PathBuf>> {
    // A symbolic link in ~/bin leads to the folder where the rest was installed.
    let exe = exe.canonicalize().unwrap_or_else(|_| exe.to_owned());
    let folder = exe.parent().unwrap_or(Path::new("/"));
    let mut places = vec![folder.to_owned(), folder.join("../lib/gputrace"), folder.join("deps")];
    if folder.file_name().is_some_and(|name| name == "deps") {
        places.push(folder.join(".."));
    }
    for place in &places {
        let file = place.join(name);
        if file.is_file() {
            return Ok(file.canonicalize().unwrap_or(file));
        }
    }
    Err(places)
}

fn places_text(places: &[PathBuf]) -> String {
    places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::Folder;

    #[test]
    fn it_is_found_beside_the_executable_in_lib_and_in_build_folders() {
        for (exe, library) in [
            ("bin/gputrace", "bin/libx.so"),
            ("bin/gputrace", "lib/gputrace/libx.so"),
            ("debug/gputrace", "debug/deps/libx.so"),
            ("debug/deps/test-1", "debug/libx.so"),
        ] {
            let folder = Folder::new("shim");
            let exe = folder.file(exe, b"", 0o755);
            let places = find_beside(&exe, "libx.so").unwrap_err();
            assert!(places.len() >= 3, "{places:?}");
            let library = folder.file(library, b"", 0o644);
            assert_eq!(find_beside(&exe, "libx.so"), Ok(library.canonicalize().unwrap()));
        }
    }

    #[test]
    fn a_link_to_the_executable_leads_to_its_folder() {
        let folder = Folder::new("shim-link");
        let exe = folder.file("opt/bin/gputrace", b"", 0o755);
        let library = folder.file("opt/lib/gputrace/libx.so", b"", 0o644);
        let link = folder.path().join("gputrace");
        std::os::unix::fs::symlink(&exe, &link).unwrap();
        assert_eq!(find_beside(&link, "libx.so"), Ok(library.canonicalize().unwrap()));
    }
}
