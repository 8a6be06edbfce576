//! CUPTI: which library `--gpu-time full`, `windows` and `auto` would use, and what may keep them from it.
//!
//! The shim takes the one of the CUDA libraries that a program has loaded (`shim/src/gpu_time`). doctor has no program: it looks
//! where one would have these, in the packages of the command's Python or of the one in PATH, and in toolkits; then it asks the
//! loader, as the shim does. What is found is loaded in the child that asks the driver.

use std::env;
use std::ffi::{CStr, CString, OsStr, OsString, c_int, c_void};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Check;
use super::driver::libraries;
use crate::launch::find_command::find_command;
use crate::launch::inspect::inspect;

/// Names of the library by the major version of the CUDA that it belongs to, as the shim has them.
const NAMES: [(i32, &str); 3] = [(13, "libcupti.so.13"), (12, "libcupti.so.12"), (11, "libcupti.so.11.8")];
/// Where a toolkit has it.
const OF_TOOLKIT: [&str; 3] = ["extras/CUPTI/lib64", "lib64", "lib"];
/// Folders that are named where there is none.
const SHOWN: usize = 4;
/// Names a library for the shim.
const NAMED: &str = "GPUTRACE_CUPTI";
const CURE: &str = "GPUTRACE_CUPTI names one; --gpu-time events needs none, and auto goes on with events";

/// Files that the child tries, in this order, before it asks the loader; and the folders in which they were looked for.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Looked {
    /// Everywhere that this environment names, for a command.
    pub(super) fn here(command: &[OsString]) -> Looked {
        if let Some(named) = env::var_os(NAMED).filter(|named| !named.is_empty()) {
            return Looked { files: vec![named.into()], folders: Vec::new() };
        }
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let mut looked = Looked::default();
        let home = variable("HOME").map(|home| home.join(".local"));
        let prefixes = [python(command), variable("VIRTUAL_ENV"), variable("CONDA_PREFIX"), home];
        let prefixes = prefixes.into_iter().flatten().chain(["/usr/local".into(), "/usr".into()]);
        prefixes.for_each(|prefix| looked.of_python(&prefix));
        let mut toolkits: Vec<PathBuf> =
            ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"].into_iter().filter_map(variable).collect();
        toolkits.push("/usr/local/cuda".into());
        toolkits.extend(children(Path::new("/usr/local"), |name| name.starts_with("cuda-")));
        toolkits.iter().for_each(|toolkit| OF_TOOLKIT.iter().for_each(|folder| looked.at(&toolkit.join(folder))));
        looked
    }

    /// The packages below a Python's prefix.
    fn of_python(&mut self, prefix: &Path) {
        let versions = ["lib", "lib64"]
            .into_iter()
            .flat_map(|lib| children(&prefix.join(lib), |name| name.starts_with("python3")));
        for version in versions {
            for packages in ["site-packages", "dist-packages"] {
                let nvidia = version.join(packages).join("nvidia");
                children(&nvidia, |name| name.starts_with("cu"))
                    .iter()
                    .for_each(|package| self.at(&package.join("lib")));
            }
        }
    }

    fn at(&mut self, folder: &Path) {
        if !folder.is_dir() || self.folders.iter().any(|known| known == folder) {
            return;
        }
        self.folders.push(folder.to_owned());
        self.files.extend(NAMES.iter().map(|(_, name)| folder.join(name)).filter(|file| file.is_file()));
    }
}

/// Folders in a folder whose names fit, the highest version first.
fn children(folder: &Path, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        listed.filter(|entry| entry.file_name().to_str().is_some_and(&fits)).map(|entry| entry.path()).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found
}

/// The prefix of the Python that does a command's work, else of the one in PATH. A virtual environment's is a link out of it: its
/// packages are beside the link.
fn python(command: &[OsString]) -> Option<PathBuf> {
    let search = env::var_os("PATH");
    let chain = |name: &OsStr| {
        let path = find_command(name, search.as_deref()).ok()?;
        Some(inspect(&path, search.as_deref()).chain.into_iter().chain([path]).collect::<Vec<_>>())
    };
    let is_python =
        |file: &PathBuf| file.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("python"));
    let of = |name: &OsStr| chain(name)?.into_iter().find(is_python);
    let found = command.first().and_then(|name| of(name)).or_else(|| of("python3".as_ref()))?;
    Some(found.parent()?.parent()?.to_owned())
}

/// The child's answer: the first library that can be loaded and tells its version, of the files and then of the loader's.
pub(super) fn probe(files: &[PathBuf], driver: Option<c_int>, out: &mut impl Write) -> Result<()> {
    let named = env::var_os(NAMED).is_some_and(|named| !named.is_empty());
    let fits = |major: i32| !named && driver.is_none_or(|version| major <= version / 1000);
    let by_loader = NAMES.iter().filter(|(major, _)| fits(*major)).map(|(_, name)| PathBuf::from(name));
    let mut why = String::new();
    for file in files.iter().cloned().chain(by_loader) {
        match version(&file) {
            Ok(version) => {
                // The loader knows where it found what has no folder.
                let name = file.to_string_lossy().into_owned();
                let found = libraries().into_iter().find(|path| path.ends_with(&format!("/{name}")));
                writeln!(out, "cupti={}\ncupti_version={version}", found.unwrap_or(name))?;
                return Ok(());
            }
            Err(error) => why = error,
        }
    }
    writeln!(out, "cupti_error={}", why.replace('\n', " "))?;
    Ok(())
}

/// The version of CUPTI's interface that a library answers.
fn version(file: &Path) -> Result<u32, String> {
    let name = CString::new(file.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the names end in nul bytes; the type is that of CUPTI's function of this name, and its argument outlives the call.
    unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        if library.is_null() {
            return Err(CStr::from_ptr(libc::dlerror()).to_string_lossy().into_owned());
        }
        let function = libc::dlsym(library, c"cuptiGetVersion".as_ptr());
        if function.is_null() {
            return Err(format!("{}: not CUPTI", file.display()));
        }
        let mut version = 0;
        let get = std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut u32) -> u32>(function);
        if get(&mut version) == 0 { Ok(version) } else { Err(format!("{}: tells no version", file.display())) }
    }
}

/// A line where the child asked, which it does where there are devices.
pub(super) fn judge<'a>(value: &impl Fn(&str) -> Option<&'a str>, looked: &Looked) -> Option<Check> {
    let Some(file) = value("cupti") else {
        let why = value("cupti_error")?;
        let none = "no libcupti.so.13, .12 or .11.8";
        let found = match (looked.files.first(), looked.folders.as_slice()) {
            (Some(_), _) => why.to_owned(),
            (None, []) => format!("{none}, nor any of CUDA's packages or toolkits: the loader was asked"),
            (None, folders) => {
                let more = if folders.len() > SHOWN { ", ..." } else { "" };
                let shown: Vec<String> =
                    folders.iter().take(SHOWN).map(|folder| folder.display().to_string()).collect();
                format!("{none} in {}{more}, and the loader knows of none", shown.join(", "))
            }
        };
        return Some(Check::note("cupti", found, CURE));
    };
    let found = format!(
        "{file}, version {}, for --gpu-time full, windows and auto",
        value("cupti_version").unwrap_or("unknown")
    );
    let major = NAMES.iter().find(|(_, name)| file.ends_with(name)).map(|(major, _)| *major);
    let driver = value("version").and_then(|version| version.parse::<i32>().ok()).map(|version| version / 1000);
    match (major, driver) {
        (Some(major), Some(driver)) if major > driver => {
            Some(Check::note("cupti", format!("{found}: newer than the driver, which is of CUDA {driver}"), CURE))
        }
        _ => Some(Check::fine("cupti", found)),
    }
}

/// What the driver's parameters and the environment say of who may use CUPTI.
pub(super) fn rights() -> Vec<Check> {
    let parameters = fs::read_to_string("/proc/driver/nvidia/params").ok();
    let injection = env::var("CUDA_INJECTION64_PATH").ok();
    parameters.as_deref().and_then(restricted).into_iter().chain(injection.as_deref().and_then(injected)).collect()
}

/// Whether the driver keeps the hardware's counters for administrators.
fn restricted(parameters: &str) -> Option<Check> {
    const NAMES: [&str; 2] = ["RmProfilingAdminOnly:", "RestrictProfilingToAdminUsers:"];
    let value = parameters.lines().find_map(|line| NAMES.iter().find_map(|name| line.trim().strip_prefix(name)))?;
    let cure = "administrators may set NVreg_RestrictProfilingToAdminUsers=0";
    Some(match value.trim() {
        "0" => Check::fine("profiling", "the driver lets everybody use the GPU's counters"),
        _ => Check::note(
            "profiling",
            "the driver restricts the GPU's counters to administrators: Nsight Compute's, and CUPTI's before CUDA 10.2",
            cure,
        ),
    })
}

/// Whether another tool is to be loaded into every program that uses CUDA.
fn injected(path: &str) -> Option<Check> {
    let cure = "unset it for --gpu-time full and windows; --gpu-time auto and events work beside it";
    let found = format!("CUDA_INJECTION64_PATH={path}: CUPTI is left to that tool");
    (!path.is_empty()).then(|| Check::note("injection", found, cure))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::launch::testing::Folder;

    fn judged(answer: &str, looked: &Looked) -> Option<Check> {
        judge(&|key: &str| answer.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')), looked)
    }

    #[test]
    fn the_library_is_looked_for_in_a_pythons_packages_and_in_toolkits() {
        let folder = Folder::new("doctor-cupti");
        let packages = "lib/python3.12/site-packages/nvidia";
        let files =
            [format!("{packages}/cu13/lib/libcupti.so.13"), format!("{packages}/cuda_cupti/lib/libcupti.so.12")];
        for file in files.iter().chain([&"extras/CUPTI/lib64/libcupti.so.11.8".to_owned()]) {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        fs::create_dir_all(folder.path().join(packages).join("cudnn/lib")).unwrap();
        let mut looked = Looked::default();
        looked.of_python(folder.path());
        let mut found = looked.files.clone();
        found.sort();
        assert_eq!(found, files.map(|file| folder.path().join(file)));
        assert_eq!(looked.folders.len(), 3);
        OF_TOOLKIT.iter().for_each(|of| looked.at(&folder.path().join(of)));
        assert!(looked.files.last().unwrap().ends_with("extras/CUPTI/lib64/libcupti.so.11.8"), "{:?}", looked.files);
    }

    #[test]
    fn what_was_found_or_not_is_one_line() {
        let none = Looked::default();
        let fine = judged("version=13000\ncupti=/x/libcupti.so.13\ncupti_version=130000", &none).unwrap();
        assert_eq!(
            fine.line(),
            "ok    cupti           /x/libcupti.so.13, version 130000, for --gpu-time full, windows and auto\n"
        );
        let newer = judged("version=12020\ncupti=/x/libcupti.so.13\ncupti_version=130000", &none).unwrap();
        assert!(
            newer.level == Level::Note && newer.found.ends_with("newer than the driver, which is of CUDA 12"),
            "{newer:?}"
        );
        let looked = Looked { files: Vec::new(), folders: vec!["/a/lib".into(), "/b/lib".into()] };
        let missing = judged("cupti_error=libcupti.so.12: cannot open", &looked).unwrap();
        assert!(missing.found.contains("in /a/lib, /b/lib, and the loader knows of none"), "{missing:?}");
        let broken = Looked { files: vec!["/x/mine.so".into()], folders: Vec::new() };
        assert_eq!(judged("cupti_error=/x/mine.so: not CUPTI", &broken).unwrap().found, "/x/mine.so: not CUPTI");
        assert_eq!(judged("devices=0", &none), None);
    }

    #[test]
    fn who_may_use_it_is_said() {
        let level = |text: &str| restricted(text).map(|check| check.level);
        assert_eq!(level("ModifyDeviceFiles: 1\nRmProfilingAdminOnly: 1\n"), Some(Level::Note));
        assert_eq!(level("RmProfilingAdminOnly: 0\n"), Some(Level::Fine));
        assert_eq!(level("ModifyDeviceFiles: 1\n"), None);
        assert_eq!(injected(""), None);
        assert!(injected("/opt/tool.so").is_some_and(|check| check.line().contains("/opt/tool.so: CUPTI is left")));
    }

    #[test]
    fn the_names_are_those_of_the_shim() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/src/gpu_time");
        let sources = fs::read_dir(folder).unwrap().flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
        let sources: String = sources.collect();
        for (_, name) in NAMES {
            assert!(sources.contains(&format!("c\"{name}\"")), "{name}");
        }
        assert_eq!(sources.matches("c\"libcupti.so.").count(), NAMES.len());
        assert!(sources.contains("/extras/CUPTI/lib64/") && sources.contains("/cuda_cupti/lib/"));
    }
}
