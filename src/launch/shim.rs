//! Finds the shim, the library that is loaded into the target.
//!
//! Installed, it lies beside the executable or in `../lib/gputrace`; in a build folder it lies beside the executable
//! or in `deps`, which is also where tests find it. The simulated driver is looked for in the same places.

use std::path::{Path, PathBuf};

/// File name of the shim.
pub(crate) const SHIM: &str = "libgputrace_shim.so";
/// File name of the simulated driver.
pub(crate) const FAKE_DRIVER: &str = "libfake_cuda.so";

/// The first file called `name` in the places above, or the list of places.
pub(crate) fn find_library(name: &str) -> Result<PathBuf, Vec<PathBuf>> {
    match std::env::current_exe() {
        Ok(exe) => find_beside(&exe, name),
        Err(_) => Err(Vec::new()),
    }
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

/// The list of places as one line.
pub(crate) fn places_text(places: &[PathBuf]) -> String {
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
