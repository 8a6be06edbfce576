//! The shim and the driver's library, tried in a child process.
//!
//! The child is this executable again with the shim preloaded (and inert: GPUTRACE=off), so that one start shows
//! whether the loader takes the shim and what the driver says. It answers in lines `key=value` on stdout.

use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Check, counters, cupti};
use crate::commands::record::DISABLE_FILE;
use crate::launch::environ;
use crate::launch::session::{self, Session};
use crate::launch::shim::{self, SHIM};

/// A healthy driver starts in well under a second; one with a dead GPU may never answer.
const PATIENCE: Duration = Duration::from_secs(30);
const NO_DEVICE: i32 = 100;

/// `command`: what would be traced, if anything is named.
pub(super) fn checks(command: &[OsString]) -> Vec<Check> {
    let mut checks = vec![switch()];
    let shim = match shim::find_library(SHIM) {
        Ok(shim) => shim,
        Err(missing) => {
            checks.push(Check::fail("shim", format!("{SHIM} is {missing}"), "install it beside gputrace"));
            return checks;
        }
    };
    let session = match Session::new(&session::bases(), &shim, None) {
        Ok(session) => session,
        Err(error) => {
            checks.push(Check::fail("session", format!("{error:#}"), ""));
            return checks;
        }
    };
    checks.push(Check::fine("session", format!("{}", session.root().parent().unwrap_or(session.root()).display())));
    checks.push(hooks());
    let looked = cupti::Looked::here(command);
    let answer = ask(&session, &looked.files);
    session.end(false);
    let value = |key: &str| answer.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    checks.push(match value("shim") {
        Some("loaded") => Check::fine("shim", shim.display().to_string()),
        _ => Check::fail(
            "shim",
            format!("{}: the loader does not take it", shim.display()),
            "see what this prints: LD_DEBUG=libs gputrace -- true",
        ),
    });
    checks.push(judge_driver(&value));
    checks.extend(counters::judge(&value));
    checks.extend(cupti::judge(&value, &looked));
    checks.extend(cupti::rights());
    checks
}

/// By which route driver calls would be reached.
fn hooks() -> Check {
    let what = "symbols; nothing in the driver is changed unless --hook inline asks for it";
    match shim::find_library(shim::ENGINE) {
        Ok(engine) => Check::fine("hook", format!("{what} (by {})", engine.display())),
        Err(missing) => {
            let cure = "install it beside gputrace for --hook inline";
            Check::note("hook", format!("{what}, and {} is {missing}", shim::ENGINE), cure)
        }
    }
}

fn switch() -> Check {
    if std::path::Path::new(DISABLE_FILE).exists() {
        return Check::fail(
            "switch",
            format!("{DISABLE_FILE} switches tracing off"),
            "ask this machine's administrator",
        );
    }
    if std::env::var_os("GPUTRACE").is_some_and(|value| value == "off") {
        return Check::fail("switch", "GPUTRACE=off switches tracing off", "unset GPUTRACE");
    }
    Check::fine("switch", "tracing is not switched off")
}

fn judge_driver<'a>(value: &impl Fn(&str) -> Option<&'a str>) -> Check {
    let Some(path) = value("driver") else {
        return match value("driver_error") {
            Some(error) => {
                let cure =
                    "GPU calls need NVIDIA's driver; memory is traced without it, and gputrace demo simulates it";
                Check::note("driver", error, cure)
            }
            None => Check::note("driver", "the library did not answer", "check it with nvidia-smi"),
        };
    };
    let version = value("version").and_then(|v| v.parse::<i32>().ok()).unwrap_or(0);
    let version = format!("{path}, CUDA {}.{}", version / 1000, version % 1000 / 10);
    match value("init").and_then(|code| code.parse::<i32>().ok()) {
        Some(0) => match value("devices") {
            Some("0") | None => Check::note("driver", format!("{version}, no device"), ""),
            Some(devices) => {
                let plural = if devices == "1" { "" } else { "s" };
                let name = value("name").map_or(String::new(), |name| format!(" ({name})"));
                Check::fine("driver", format!("{version}, {devices} device{plural}{name}"))
            }
        },
        Some(NO_DEVICE) => Check::note("driver", format!("{version}, no device"), "in a container pass the GPU in"),
        Some(code) => {
            let found = format!("{version}, cuInit gives error {code}");
            Check::note("driver", found, "programs will get the same error; check it with nvidia-smi")
        }
        None => Check::note("driver", format!("{version}, cuInit did not return"), "check it with nvidia-smi"),
    }
}

/// Starts the child and collects its answer, which may be cut short by a crash or by our patience.
fn ask(session: &Session, cupti: &[PathBuf]) -> String {
    let Some(exe) = shim::own_path() else { return String::new() };
    let child = Command::new(exe)
        .arg("__driver-probe")
        .args(cupti)
        .env(environ::PRELOAD, session.preload())
        .env("GPUTRACE_SESSION", session.path())
        .env("GPUTRACE", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    child.map(collect).unwrap_or_default()
}

fn collect(mut child: Child) -> String {
    let Some(mut output) = child.stdout.take() else { return String::new() };
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = output.read_to_end(&mut text);
        text
    });
    let deadline = Instant::now() + PATIENCE;
    while !reader.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    if !reader.is_finished() {
        let _ = child.kill();
    }
    let _ = child.wait();
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

/// The child's work; `cupti`: files that may be CUPTI.
pub(crate) fn probe(cupti: &[PathBuf]) -> Result<()> {
    let mut out = std::io::stdout();
    let shim = mapped(|name| name == SHIM || name == "libgputrace.so");
    writeln!(out, "shim={}", if shim.is_some() { "loaded" } else { "missing" })?;
    let driver_version;
    // SAFETY: the names end in nul bytes; each type is the signature that the driver documents for that name; every
    // pointer is to a variable that outlives its call.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        if library.is_null() {
            writeln!(out, "driver_error={}", CStr::from_ptr(libc::dlerror()).to_string_lossy().replace('\n', " "))?;
            return Ok(());
        }
        let path = mapped(|name| name.starts_with("libcuda.so") || name == shim::FAKE_DRIVER);
        writeln!(out, "driver={}", path.unwrap_or_else(|| "libcuda.so.1".to_owned()))?;
        let find = |name: &CStr| Some(libc::dlsym(library, name.as_ptr())).filter(|found| !found.is_null());
        type GetNumber = unsafe extern "C" fn(*mut c_int) -> c_int;
        let number = |name: &CStr| {
            let mut value = 0;
            let function: GetNumber = std::mem::transmute::<*mut c_void, GetNumber>(find(name)?);
            (function(&mut value) == 0).then_some(value)
        };
        driver_version = number(c"cuDriverGetVersion");
        if let Some(version) = driver_version {
            writeln!(out, "version={version}")?;
        }
        out.flush()?;
        let Some(init) = find(c"cuInit") else { return Ok(()) };
        let init = std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_uint) -> c_int>(init);
        writeln!(out, "init={}", init(0))?;
        let devices = number(c"cuDeviceGetCount");
        if let Some(devices) = devices {
            writeln!(out, "devices={devices}")?;
        }
        if let Some(function) = find(c"cuDeviceGetName") {
            type GetName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
            let mut name = [0 as c_char; 256];
            if std::mem::transmute::<*mut c_void, GetName>(function)(name.as_mut_ptr(), 255, 0) == 0 {
                writeln!(out, "name={}", CStr::from_ptr(name.as_ptr()).to_string_lossy())?;
            }
        }
        if devices.is_none_or(|devices| devices == 0) {
            return Ok(());
        }
    }
    counters::probe(&mut out)?;
    cupti::probe(cupti, driver_version, &mut out)
}

/// Path of the first library of this process whose name fits. The loader is asked and not /proc, which may be hidden.
fn mapped(fits: impl Fn(&str) -> bool) -> Option<String> {
    let found = libraries().into_iter().find(|path| fits(path.rsplit('/').next().unwrap_or_default()))?;
    Some(std::fs::canonicalize(&found).map_or(found, |path| path.to_string_lossy().into_owned()))
}

#[cfg(target_os = "linux")]
pub(super) fn libraries() -> Vec<String> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader hands out a valid structure whose name ends in a nul byte, and `names` as it was given.
        unsafe {
            let names = &mut *names.cast::<Vec<String>>();
            names.push(CStr::from_ptr((*info).dlpi_name).to_string_lossy().into_owned());
        }
        0
    }
    let mut names: Vec<String> = Vec::new();
    // SAFETY: the callback matches, and the list outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names
}

#[cfg(target_os = "macos")]
pub(super) fn libraries() -> Vec<String> {
    unsafe extern "C" {
        fn _dyld_image_count() -> u32;
        fn _dyld_get_image_name(number: u32) -> *const c_char;
    }
    let mut names = Vec::new();
    // SAFETY: the loader answers any number, and names what is there by a string that ends in a nul byte.
    unsafe {
        for name in (0.._dyld_image_count()).map(|number| _dyld_get_image_name(number)).filter(|name| !name.is_null()) {
            names.push(CStr::from_ptr(name).to_string_lossy().into_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn judged(answer: &str) -> Check {
        judge_driver(&|key: &str| answer.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')))
    }

    #[test]
    fn the_drivers_answers_become_one_line() {
        let fine = judged("driver=/x/libcuda.so.580\nversion=13000\ninit=0\ndevices=2\nname=H200");
        assert_eq!(fine, Check::fine("driver", "/x/libcuda.so.580, CUDA 13.0, 2 devices (H200)"));
        for (answer, part) in [
            ("driver_error=libcuda.so.1: cannot open", "cannot open"),
            ("driver=/x\nversion=12020\ninit=100", "CUDA 12.2, no device"),
            ("driver=/x\nversion=12020\ninit=802", "error 802"),
            ("driver=/x\nversion=12020", "did not return"),
            ("", "did not answer"),
        ] {
            let check = judged(answer);
            assert_eq!(check.level, Level::Note);
            assert!(check.found.contains(part), "{check:?}");
        }
    }
}
