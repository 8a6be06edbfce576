//! Says before the start which program of a command would lose the shim on macOS, why, and what to do instead.
//!
//! A command may become several programs one after the other: a script's `env`, a version manager's shell, a launcher of
//! Python's. macOS takes DYLD_INSERT_LIBRARIES away when one of its own programs is executed, and for all that comes after
//! it. So the way is followed to its end, and each program on it is judged. It reads files only ([`Files`]), which a test
//! makes up on any system.

// Linux asks only for [`describe`]; the rest is tested there.
#![cfg_attr(target_os = "linux", allow(dead_code, unused_imports))]

mod cure;
mod files;
mod judge;
mod shims;
#[cfg(test)]
mod testing;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(crate) use files::{Files, Machine};
pub(crate) use judge::{Host, Why};

use super::find_command::{command_of_env, shebang};
use super::macho::Cpu;
#[cfg(target_os = "linux")]
use super::macho::Slice;

/// The kernel follows a script to a script only this often.
const MOST_STEPS: usize = 8;

/// A program that would lose the shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stripped {
    pub(crate) by: PathBuf,
    pub(crate) why: Why,
    pub(crate) cure: String,
}

impl fmt::Display for Stripped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.by.display(), self.why)
    }
}

/// What a command becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// The file itself, or a script and the programs that it leads to; the last one does the work.
    pub(crate) chain: Vec<PathBuf>,
    /// The first one that would lose the shim.
    pub(crate) stripped: Option<Stripped>,
    /// The last one is translated by Rosetta.
    pub(crate) translated: bool,
}

/// Follows the program at `path` to its end on this machine.
pub(crate) fn follow(path: &Path, files: &impl Files, host: &Host) -> Way {
    let mut chain = vec![path.to_owned()];
    let mut images = Vec::new();
    // What a version manager's shim leads to, once one was met.
    let mut real = None;
    while chain.len() <= MOST_STEPS {
        let Some(at) = chain.last().cloned() else { break };
        let head = files.head(&at).unwrap_or_default();
        let Some((interpreter, argument)) = shebang(&head) else {
            images.push(at.clone());
            match launched_by(&at, files).filter(|next| !chain.contains(next)) {
                Some(next) => chain.push(next),
                None => break,
            }
            continue;
        };
        real = real.or_else(|| shims::behind(&at, &head, files));
        let is_env = interpreter.file_name() == Some(OsStr::new("env"));
        if is_env {
            chain.push(interpreter.clone());
            images.push(interpreter);
            let command = argument.as_deref().and_then(command_of_env);
            let Some(next) = command.and_then(|name| find(&name, files)) else { break };
            chain.push(next);
        } else {
            chain.push(interpreter);
        }
    }
    if let Some(real) = real.clone().filter(|real| !chain.contains(real)) {
        images.push(real.clone());
        chain.push(real);
    }
    let found = images.iter().find_map(|image| Some((image.clone(), judge::of_file(image, files, host)?)));
    let stripped = found.map(|(by, why)| {
        let cure = cure::cure(&by, &why, &chain, real.as_deref(), files, host);
        Stripped { cure, by, why }
    });
    let last = images.last().and_then(|image| files.slices(image)).unwrap_or_default();
    let translated =
        host.cpu == Cpu::Arm64 && judge::running(&last, host).is_some_and(|slice| slice.cpu == Cpu::X86_64);
    Way { chain, stripped, translated }
}

/// Judges one program that a process runs.
pub(crate) fn judge(path: &Path, files: &impl Files, host: &Host) -> Option<Stripped> {
    let why = judge::of_file(path, files, host)?;
    Some(Stripped { by: path.to_owned(), cure: why.cure().to_owned(), why })
}

/// What a program for macOS is, in words: its processors, and what would keep the shim out there.
#[cfg(target_os = "linux")]
pub(crate) fn describe(slices: &[Slice]) -> String {
    let cpus: Vec<String> = slices.iter().map(|slice| slice.cpu.to_string()).collect();
    let host = Host { cpu: Cpu::Arm64, shim: vec![Cpu::X86_64, Cpu::Arm64] };
    let why = judge::running(slices, &host).and_then(|slice| judge::of_slice(slice, &host));
    let there = why.map_or(String::new(), |why| format!("; there it {why}"));
    let what = slices.first().map_or("a file", |slice| slice.kind.word());
    format!("{what} for macOS ({}){there}", cpus.join(", "))
}

/// The program that a launcher of Python's framework becomes: `bin/python3` of a framework only executes the application
/// beside it, which is the interpreter.
fn launched_by(path: &Path, files: &impl Files) -> Option<PathBuf> {
    let target = files.target(path);
    let folder = target.parent().filter(|folder| folder.file_name() == Some(OsStr::new("bin")))?;
    let version = folder.parent()?;
    // Python3.framework is the one of Apple's command line tools.
    let frameworks = ["Python.framework", "Python3.framework"].map(OsStr::new);
    let is_framework = version.ancestors().any(|part| part.file_name().is_some_and(|name| frameworks.contains(&name)));
    let is_python = target.file_name()?.as_bytes().starts_with(b"python");
    let application = version.join("Resources/Python.app/Contents/MacOS/Python");
    (is_framework && is_python && files.is_program(&application)).then_some(application)
}

/// The first program of this name in PATH.
fn find(name: &OsStr, files: &impl Files) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let search = files.variable("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    std::env::split_paths(&search).map(|folder| folder.join(name)).find(|path| files.is_program(path))
}

#[cfg(test)]
mod tests {
    use super::super::macho::testing::{ALLOW_DYLD, Built, fat};
    use super::testing::Tree;
    use super::*;

    const PYTHON: &str = "/opt/homebrew/bin/python3";

    fn tree() -> Tree {
        let system = Built::new(Cpu::Arm64e).flags(0x800).bytes();
        let intel = Built::new(Cpu::X86_64).bytes();
        let mut tree = Tree::default();
        for path in ["/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/python3"] {
            tree.program(path, &fat(&[(Cpu::X86_64, &intel), (Cpu::Arm64e, &system)], false));
        }
        tree.program(PYTHON, &Built::new(Cpu::Arm64).flags(2).bytes());
        tree.set("PATH", "/opt/homebrew/bin:/usr/bin:/bin");
        tree
    }

    fn way(tree: &Tree, path: &str) -> Way {
        follow(Path::new(path), tree, &Host::universal(Cpu::Arm64))
    }

    #[track_caller]
    fn stripped(tree: &Tree, path: &str) -> Stripped {
        way(tree, path).stripped.expect("somebody takes the shim away")
    }

    #[test]
    fn a_program_of_homebrews_and_a_script_of_it_are_traced() {
        let mut tree = tree();
        tree.program("/w/train.py", format!("#!{PYTHON} -u\n").as_bytes());
        assert_eq!(way(&tree, PYTHON).stripped, None);
        let way = way(&tree, "/w/train.py");
        assert_eq!((way.stripped, way.translated), (None, false));
        assert_eq!(way.chain, ["/w/train.py", PYTHON].map(PathBuf::from));
    }

    #[test]
    fn a_script_by_env_is_told_to_name_its_interpreter() {
        let mut tree = tree();
        tree.program("/w/train.py", b"#!/usr/bin/env python3\n");
        let found = stripped(&tree, "/w/train.py");
        assert_eq!((found.by.as_path(), &found.why), (Path::new("/usr/bin/env"), &Why::Protected));
        assert_eq!(found.cure, format!("call its interpreter directly: gputrace -- {PYTHON} /w/train.py ..."));
        assert!(found.to_string().starts_with("/usr/bin/env is part of macOS"), "{found}");
        tree.set("PATH", "/usr/bin:/bin");
        assert_eq!(stripped(&tree, "/w/train.py").cure, "call a Homebrew, uv or pyenv interpreter directly");
    }

    #[test]
    fn apples_own_shell_env_and_python_are_named_with_what_to_use_instead() {
        let mut tree = tree();
        tree.program("/w/run", b"#!/bin/sh\n");
        assert!(stripped(&tree, "/w/run").cure.contains("/opt/homebrew/bin/bash /w/run"));
        assert!(stripped(&tree, "/bin/sh").cure.contains("not Apple's"));
        assert!(stripped(&tree, "/usr/bin/env").cure.contains("leave env out"));
        assert!(stripped(&tree, "/usr/bin/python3").cure.contains("pyenv interpreter"));
    }

    #[test]
    fn the_interpreter_behind_a_version_managers_shim_is_named() {
        let mut tree = tree();
        let shim = "/Users/a/.pyenv/shims/python";
        let text = "#!/usr/bin/env bash\nset -e\nprogram=\"${0##*/}\"\nexport PYENV_ROOT=\"/Users/a/.pyenv\"\nexec \
                    \"/opt/homebrew/bin/pyenv\" exec \"$program\" \"$@\"\n";
        tree.program(shim, text.as_bytes());
        tree.file("/Users/a/.pyenv/version", b"3.12.4\n");
        let real = "/Users/a/.pyenv/versions/3.12.4/bin/python";
        tree.program(real, &Built::new(Cpu::Arm64).bytes());
        let found = stripped(&tree, shim);
        assert_eq!(found.by, Path::new("/usr/bin/env"));
        assert_eq!(found.cure, format!("call what it leads to directly: gputrace -- {real} ..."));
    }

    #[test]
    fn a_launcher_of_pythons_framework_is_followed_to_the_interpreter() {
        let of_apples_tools = "/Library/Developer/CommandLineTools/Library/Frameworks/Python3.framework/Versions/3.9";
        for version in ["/Library/Frameworks/Python.framework/Versions/3.13", of_apples_tools] {
            let application = format!("{version}/Resources/Python.app/Contents/MacOS/Python");
            let mut tree = tree();
            tree.program(&format!("{version}/bin/python3.13"), &Built::new(Cpu::Arm64).bytes());
            tree.program(&application, &Built::new(Cpu::Arm64).flags(0x1_0000).bytes());
            tree.link("/usr/local/bin/python3", &format!("{version}/bin/python3.13"));
            let found = stripped(&tree, "/usr/local/bin/python3");
            assert_eq!((found.by.as_path(), &found.why), (Path::new(&application), &Why::Hardened));
            assert!(found.cure.contains(ALLOW_DYLD), "{}", found.cure);
        }
    }

    #[test]
    fn a_program_under_rosetta_is_traced_and_said_to_be_translated() {
        let mut tree = tree();
        tree.program("/w/old", &Built::new(Cpu::X86_64).bytes());
        assert_eq!((way(&tree, "/w/old").stripped, way(&tree, "/w/old").translated), (None, true));
        let arm_only = Host { cpu: Cpu::Arm64, shim: vec![Cpu::Arm64] };
        let way = follow(Path::new("/w/old"), &tree, &arm_only);
        assert!(matches!(way.stripped.expect("no slice fits").why, Why::NoSlice { .. }));
    }

    #[test]
    fn a_way_that_leads_back_to_itself_or_nowhere_ends() {
        let mut tree = tree();
        tree.program("/w/a", b"#!/w/b\n");
        tree.program("/w/b", b"#!/w/a\n");
        tree.program("/w/me", b"#!/usr/bin/env /w/me\n");
        tree.program("/w/none", b"#!/usr/bin/env no-such-program\n");
        for path in ["/w/a", "/w/me", "/w/none", "/no/such/file"] {
            assert!(way(&tree, path).chain.len() <= MOST_STEPS + 2, "{path}");
        }
    }
}
