//! Says before the start whether the loader will load the shim into a program, and why not.
//!
//! It reads files only and never touches a process. Where a file cannot be read the answer is "nothing is in the
//! way": an executable without read permission is rare, and a wrong warning is worse than none.

use std::borrow::Cow;
use std::ffi::{CString, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::elf::Sanitizer;
#[cfg(target_os = "linux")]
use super::elf::{Elf, OUR_MACHINE};
#[cfg(target_os = "linux")]
use super::find_command::follow_scripts;
use super::mac::{self, Stripped};
#[cfg(target_os = "linux")]
use super::macho;

/// What keeps the shim out of a program, on either system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(dead_code)]
pub(crate) enum Obstacle {
    /// A file that begins as one for macOS and cannot be read.
    DamagedMachO,
    /// A program for macOS, where there is Linux: for which processors, and what would keep the shim out there.
    MachO(String),
    /// musl's loader knows no `$LIB` and the shim needs glibc.
    Musl,
    /// The interpreter that the file names does not exist.
    NoInterpreter(PathBuf),
    /// Another processor's program.
    OtherMachine(u16),
    /// The kernel raises its privileges, and then the loader ignores LD_PRELOAD.
    Privileged(Privilege),
    /// It replaces malloc itself, and its reports must not show ours.
    Sanitizer(Sanitizer),
    /// No loader runs in it.
    Static,
    /// macOS takes the shim away from a program that the command becomes.
    Stripped(Box<Stripped>),
    /// A 32-bit program.
    ThirtyTwoBit,
}

/// How a file raises the privileges of who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// File capabilities.
    Capabilities,
    /// The setgid bit, for a group that is not ours.
    Setgid,
    /// The setuid bit, of a user who is not us.
    Setuid,
}

impl Obstacle {
    /// Whether the environment may carry LD_PRELOAD for the sake of children that can be traced.
    pub(crate) fn lets_children_be_traced(&self) -> bool {
        match self {
            Obstacle::OtherMachine(_) | Obstacle::Sanitizer(_) => false,
            Obstacle::Stripped(stripped) => !stripped.why.is_deadly(),
            Obstacle::DamagedMachO
            | Obstacle::MachO(_)
            | Obstacle::Musl
            | Obstacle::NoInterpreter(_)
            | Obstacle::Privileged(_)
            | Obstacle::Static
            | Obstacle::ThirtyTwoBit => true,
        }
    }

    /// What the user can do about it.
    pub(crate) fn cure(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Obstacle::DamagedMachO => "get it anew",
            Obstacle::MachO(_) => "run it on a Mac",
            Obstacle::Musl => "use a build for glibc",
            Obstacle::NoInterpreter(_) => "install that interpreter",
            Obstacle::OtherMachine(_) => "use a build for this machine",
            Obstacle::Privileged(_) => {
                "run gputrace as the user whose rights it takes, for example: sudo gputrace -- ..."
            }
            Obstacle::Sanitizer(_) => "use a build without it",
            Obstacle::Static => "link it dynamically; children that are dynamic are traced all the same",
            Obstacle::Stripped(stripped) => return Cow::Owned(stripped.cure.clone()),
            Obstacle::ThirtyTwoBit => "use a 64-bit build; the driver serves no 32-bit programs",
        })
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::DamagedMachO => f.write_str("a damaged file for macOS"),
            Obstacle::MachO(what) => f.write_str(what),
            Obstacle::Musl => f.write_str("linked to musl, whose loader cannot load the shim"),
            Obstacle::NoInterpreter(path) => write!(f, "its interpreter {} does not exist", path.display()),
            Obstacle::OtherMachine(183) => f.write_str("built for another processor, aarch64"),
            Obstacle::OtherMachine(62) => f.write_str("built for another processor, x86-64"),
            Obstacle::OtherMachine(number) => write!(f, "built for another processor, ELF machine {number}"),
            Obstacle::Privileged(Privilege::Capabilities) => {
                f.write_str("has file capabilities, so the loader ignores LD_PRELOAD")
            }
            Obstacle::Privileged(Privilege::Setgid) => f.write_str("is setgid, so the loader ignores LD_PRELOAD"),
            Obstacle::Privileged(Privilege::Setuid) => f.write_str("is setuid, so the loader ignores LD_PRELOAD"),
            Obstacle::Sanitizer(which) => write!(f, "built with {which:?}Sanitizer, which replaces malloc itself"),
            Obstacle::Static => f.write_str("statically linked, so no loader loads the shim"),
            Obstacle::Stripped(stripped) => stripped.fmt(f),
            Obstacle::ThirtyTwoBit => f.write_str("a 32-bit program"),
        }
    }
}

/// What is known of a command before its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// The file itself, or a script and its interpreters; the last one does the work.
    pub(crate) chain: Vec<PathBuf>,
    /// What keeps the shim out of it.
    pub(crate) obstacle: Option<Obstacle>,
    /// Its loader.
    pub(crate) loader: Option<PathBuf>,
    /// It is traced, but translated by Rosetta.
    pub(crate) translated: bool,
}

impl Inspection {
    /// The file that does the work.
    pub(crate) fn program(&self) -> &Path {
        self.chain.last().map_or(Path::new(""), |path| path)
    }
}

/// Inspects the program at `path`, with scripts and what they lead to.
#[cfg(target_os = "macos")]
pub(crate) fn inspect(path: &Path, _: Option<&OsStr>) -> Inspection {
    let mac::Way { chain, stripped, translated } = mac::follow(path, &mac::Machine, &mac::Host::here());
    let last = chain.last().filter(|last| chain.len() > 1 && !last.exists());
    let missing = last.map(|path| Obstacle::NoInterpreter(path.clone()));
    let obstacle = missing.or(stripped.map(|stripped| Obstacle::Stripped(Box::new(stripped))));
    Inspection { chain, obstacle, loader: None, translated }
}

/// Inspects the program at `path`, following scripts by way of `search` (the PATH).
#[cfg(target_os = "linux")]
pub(crate) fn inspect(path: &Path, search: Option<&OsStr>) -> Inspection {
    let chain = follow_scripts(path, search);
    let last = chain.last().map_or(path, |path| path);
    if chain.len() > 1 && !last.exists() {
        let obstacle = Some(Obstacle::NoInterpreter(last.to_owned()));
        return Inspection { obstacle, loader: None, translated: false, chain };
    }
    let (obstacle, loader) = inspect_file(last);
    Inspection { chain, obstacle, loader, translated: false }
}

/// Inspects one file, which a process runs: the obstacle in it.
#[cfg(target_os = "macos")]
pub(crate) fn inspect_file(path: &Path) -> (Option<Obstacle>, Option<PathBuf>) {
    let stripped = mac::judge(path, &mac::Machine, &mac::Host::here());
    (stripped.map(|stripped| Obstacle::Stripped(Box::new(stripped))), None)
}

/// Inspects one file: the obstacle in it, and its loader.
#[cfg(target_os = "linux")]
pub(crate) fn inspect_file(path: &Path) -> (Option<Obstacle>, Option<PathBuf>) {
    let Ok(Some(elf)) = Elf::read(path) else {
        let whole = macho::read_file(path).map(|slices| Obstacle::MachO(mac::describe(&slices)));
        return (whole.or_else(|| macho::claims_to_be(path).then_some(Obstacle::DamagedMachO)), None);
    };
    if elf.interpreter.is_none() && elf.machine == OUR_MACHINE && is_loader(path) {
        return (None, Some(path.to_owned()));
    }
    (privilege(path).map(Obstacle::Privileged).or_else(|| judge(&elf)), elf.interpreter)
}

/// Whether the file is glibc's loader, which may be started itself, with the program as its argument. It has no
/// interpreter either, and preloads as ever.
#[cfg(target_os = "linux")]
fn is_loader(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or_default().as_bytes();
    // ld-2.31.so is the file behind ld-linux-x86-64.so.2 up to glibc 2.33.
    ["ld-linux", "ld-2.", "ld.so"].iter().any(|start| name.starts_with(start.as_bytes()))
}

#[cfg(target_os = "linux")]
fn judge(elf: &Elf) -> Option<Obstacle> {
    const I386: u16 = super::empty_elf::I386;
    if !elf.wide && (elf.machine == OUR_MACHINE || elf.machine == I386 || elf.machine == 40) {
        return Some(Obstacle::ThirtyTwoBit);
    }
    if elf.machine != OUR_MACHINE {
        return Some(Obstacle::OtherMachine(elf.machine));
    }
    let Some(interpreter) = &elf.interpreter else { return Some(Obstacle::Static) };
    if interpreter.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-musl")) {
        return Some(Obstacle::Musl);
    }
    if !interpreter.exists() {
        return Some(Obstacle::NoInterpreter(interpreter.clone()));
    }
    elf.sanitizer.map(Obstacle::Sanitizer)
}

/// The bit of a file's mode by which it lends its user's rights.
const SETUID: u32 = 0o4000;
/// Those by which it lends its group's: without the second one the first means something else.
const SETGID: u32 = 0o2010;

/// Whether the kernel would raise our privileges for this file, as far as it makes the loader cautious.
pub(super) fn privilege(path: &Path) -> Option<Privilege> {
    let meta = path.metadata().ok()?;
    // SAFETY: the calls only read this process's credentials.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let found = if meta.mode() & SETUID != 0 && meta.uid() != uid {
        Privilege::Setuid
    } else if meta.mode() & SETGID == SETGID && meta.gid() != gid {
        Privilege::Setgid
    } else if uid != 0 && has_capabilities(path) {
        Privilege::Capabilities
    } else {
        return None;
    };
    (!privileges_are_off(path)).then_some(found)
}

#[cfg(target_os = "linux")]
fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both names end in a nul byte, and with a size of 0 nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// macOS has none.
#[cfg(target_os = "macos")]
fn has_capabilities(_: &Path) -> bool {
    false
}

/// Whether this process can get no more rights.
#[cfg(target_os = "linux")]
fn has_no_new_privileges() -> bool {
    // SAFETY: this prctl only reads a flag of the process.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// macOS has no such flag.
#[cfg(target_os = "macos")]
fn has_no_new_privileges() -> bool {
    false
}

/// Containers and sandboxes switch setuid off: by no_new_privs, or by mounting `nosuid`.
fn privileges_are_off(path: &Path) -> bool {
    if has_no_new_privileges() {
        return true;
    }
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: statvfs is plain data, for which zeros are valid; the path ends in a nul byte.
    let mut meta: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above, and `meta` lives through the call.
    unsafe { libc::statvfs(path.as_ptr(), &mut meta) == 0 && meta.f_flag & libc::ST_NOSUID != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::Folder;
    use std::process::Command;

    /// Compiles an empty program; None where this machine lacks that compiler or library.
    fn compiled(folder: &Folder, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
        let source = folder.file("main.c", b"int main(void) { return 0; }", 0o600);
        let program = folder.path().join("main");
        let out = Command::new(compiler).args(flags).arg("-o").arg(&program).arg(source).output().ok()?;
        out.status.success().then_some(program)
    }

    #[test]
    fn a_plain_program_and_a_script_of_it_have_nothing_in_the_way() {
        let folder = Folder::new("inspect-plain");
        assert_eq!(inspect(Path::new("/bin/true"), None).obstacle, None);
        let script = folder.file("script", b"#!/bin/sh\n", 0o755);
        let inspection = inspect(&script, None);
        assert_eq!(inspection.obstacle, None);
        assert_eq!(inspection.program(), Path::new("/bin/sh"));
        assert!(inspection.loader.is_some());
    }

    #[test]
    fn each_kind_of_untraceable_build_is_recognised() {
        let folder = Folder::new("inspect-builds");
        let cases: [(&str, &[&str], Obstacle); 8] = [
            ("gcc", &["-static"], Obstacle::Static),
            ("gcc", &["-static-pie"], Obstacle::Static),
            ("gcc", &["-m32"], Obstacle::ThirtyTwoBit),
            ("gcc", &["-fsanitize=address"], Obstacle::Sanitizer(Sanitizer::Address)),
            ("gcc", &["-fsanitize=thread"], Obstacle::Sanitizer(Sanitizer::Thread)),
            ("clang", &["-fsanitize=address"], Obstacle::Sanitizer(Sanitizer::Address)),
            ("clang", &["-fsanitize=memory"], Obstacle::Sanitizer(Sanitizer::Memory)),
            ("musl-gcc", &[], Obstacle::Musl),
        ];
        for (compiler, flags, expected) in cases {
            let Some(program) = compiled(&folder, compiler, flags) else { continue };
            assert_eq!(inspect_file(&program).0, Some(expected), "{compiler} {flags:?}");
        }
    }

    #[test]
    fn a_loader_that_is_started_itself_is_no_static_program() {
        let (_, loader) = inspect_file(Path::new("/bin/true"));
        let loader = loader.expect("the loader of /bin/true");
        assert_eq!(inspect_file(&loader), (None, Some(loader)));
    }

    #[test]
    fn a_missing_interpreter_is_named() {
        let folder = Folder::new("inspect-interpreter");
        let script = folder.file("script", b"#!/no/such/python\n", 0o755);
        let expected = Obstacle::NoInterpreter(PathBuf::from("/no/such/python"));
        assert_eq!(inspect(&script, None).obstacle, Some(expected));
    }

    #[test]
    fn another_machine_is_named() {
        let elf = Elf { wide: true, machine: 243, interpreter: Some("/lib/ld.so".into()), ..Elf::default() };
        assert_eq!(judge(&elf), Some(Obstacle::OtherMachine(243)));
        assert_eq!(Obstacle::OtherMachine(243).to_string(), "built for another processor, ELF machine 243");
    }

    #[test]
    fn a_setuid_program_of_another_user_is_recognised_unless_setuid_is_off() {
        let folder = Folder::new("inspect-setuid");
        let program = folder.path().join("true");
        std::fs::copy("/bin/true", &program).unwrap();
        // Only root can give a file away; for anybody else the file stays our own and harmless.
        let given = std::os::unix::fs::chown(&program, Some(65534), None).is_ok();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
        std::fs::set_permissions(&program, mode).unwrap();
        let expected = given && !privileges_are_off(&program);
        assert_eq!(privilege(&program), expected.then_some(Privilege::Setuid));
    }
}
