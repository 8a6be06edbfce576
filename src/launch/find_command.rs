//! Finds the file that a command names, as `execvp` would, and follows scripts to the program that runs them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};

/// What execvp searches when PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// The kernel follows a script to a script only this often.
#[cfg(target_os = "linux")]
const MOST_SCRIPTS: usize = 5;

/// Why a command cannot be run; the exit codes are those of `env` and of shells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Nowhere to be found: 127.
    NotFound,
    /// A file, but not one that may be executed: 126.
    NotExecutable(PathBuf),
    /// A folder: 126.
    Folder(PathBuf),
}

impl Missing {
    /// The error for the user.
    pub(crate) fn failure(&self, command: &OsStr) -> anyhow::Error {
        let name = command.to_string_lossy();
        match self {
            Missing::NotFound if name.is_empty() => {
                Failure::error(NOT_FOUND, "the command is an empty word; name one after --")
            }
            Missing::NotFound if name.contains('/') => Failure::error(NOT_FOUND, format!("{name}: no such file")),
            Missing::NotFound => Failure::error(NOT_FOUND, format!("{name}: command not found in PATH")),
            Missing::Folder(path) => Failure::error(NOT_EXECUTABLE, format!("{}: is a folder", path.display())),
            Missing::NotExecutable(path) => {
                let path = path.display();
                Failure::error(
                    NOT_EXECUTABLE,
                    format!("{path}: not executable; chmod +x {path}, or name its interpreter"),
                )
            }
        }
    }
}

/// The file that `command` names: itself if it has a slash, else the first executable of that name in `search`.
pub(crate) fn find_command(command: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, Missing> {
    if command.is_empty() {
        return Err(Missing::NotFound);
    }
    if command.as_bytes().contains(&b'/') {
        return usable(Path::new(command));
    }
    let search = search.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut missing = Missing::NotFound;
    for folder in search.as_bytes().split(|b| *b == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        match usable(&Path::new(OsStr::from_bytes(folder)).join(command)) {
            Ok(path) => return Ok(path),
            Err(Missing::NotFound | Missing::Folder(_)) => {}
            Err(other) => missing = other,
        }
    }
    Err(missing)
}

fn usable(path: &Path) -> Result<PathBuf, Missing> {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(Missing::NotExecutable(path.to_owned()));
        }
        Err(_) => return Err(Missing::NotFound),
    };
    if meta.is_dir() {
        return Err(Missing::Folder(path.to_owned()));
    }
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| Missing::NotFound)?;
    // SAFETY: the name is a string that ends in a nul byte; AT_EACCESS asks for the effective user as exec does.
    let allowed = unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) } == 0;
    // access(2) allows root what exec does not: a file without any x bit.
    if !allowed || meta.permissions().mode() & 0o111 == 0 {
        return Err(Missing::NotExecutable(path.to_owned()));
    }
    Ok(path.to_owned())
}

/// The chain from `program` to the file that the kernel loads: one entry, or a script and its interpreters.
///
/// `#!/usr/bin/env NAME` is followed through env to NAME, because it is NAME that does the work. The chain stops
/// where a file cannot be found or read.
#[cfg(target_os = "linux")]
pub(crate) fn follow_scripts(program: &Path, search: Option<&OsStr>) -> Vec<PathBuf> {
    let mut chain = vec![program.to_owned()];
    while chain.len() <= MOST_SCRIPTS {
        let head = chain.last().and_then(|path| head(path, 256)).unwrap_or_default();
        let Some((interpreter, argument)) = shebang(&head) else { break };
        let is_env = interpreter.file_name() == Some(OsStr::new("env"));
        chain.push(interpreter);
        if is_env
            && let Some(command) = argument.as_deref().and_then(command_of_env)
            && let Ok(path) = find_command(&command, search)
        {
            chain.push(path);
        }
    }
    chain
}

/// The first bytes of a regular file, at most `most`.
pub(super) fn head(path: &Path, most: u64) -> Option<Vec<u8>> {
    // Nothing else is opened: a fifo would block.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut head = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut head).ok()?;
    Some(head)
}

/// Interpreter and argument of a script's first line; `head` is how the script begins.
pub(super) fn shebang(head: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|b| *b == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|b| *b == b' ' || *b == b'\t').unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let argument = argument.trim_ascii();
    if interpreter.is_empty() {
        return None;
    }
    let argument = (!argument.is_empty()).then(|| OsString::from_vec(argument.to_vec()));
    Some((PathBuf::from(OsString::from_vec(interpreter.to_vec())), argument))
}

/// The command in what follows `env` on a script's first line: without options, what belongs to them, and assignments.
pub(super) fn command_of_env(argument: &OsStr) -> Option<OsString> {
    /// Options whose value is the next word: variables to take away, a folder, and where BSD's `env` looks for the command.
    const WITH_VALUE: [&str; 3] = ["-u", "-C", "-P"];
    let argument = argument.to_string_lossy();
    let mut words = argument
        .split_ascii_whitespace()
        .map(|word| word.strip_prefix("-S").or(word.strip_prefix("--split-string=")).unwrap_or(word));
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.is_empty() && !word.starts_with('-') && !word.contains('=') {
            return Some(OsString::from(word));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::Folder;

    fn search(folder: &Folder) -> OsString {
        let mut path = OsString::from("/nonexistent:");
        path.push(folder.path());
        path.push(":/bin:/usr/bin");
        path
    }

    #[test]
    fn a_command_is_found_where_execvp_finds_it() {
        let folder = Folder::new("find");
        let tool = folder.file("tool", b"#!/bin/sh\n", 0o755);
        let text = folder.file("text", b"", 0o644);
        let path = search(&folder);
        assert_eq!(find_command(OsStr::new("tool"), Some(&path)), Ok(tool));
        assert_eq!(find_command(OsStr::new("text"), Some(&path)), Err(Missing::NotExecutable(text.clone())));
        assert_eq!(find_command(text.as_os_str(), None), Err(Missing::NotExecutable(text)));
        assert_eq!(find_command(OsStr::new("no-such-tool"), Some(&path)), Err(Missing::NotFound));
        assert_eq!(find_command(OsStr::new(""), Some(&path)), Err(Missing::NotFound));
        assert_eq!(find_command(folder.path().as_os_str(), None), Err(Missing::Folder(folder.path().to_owned())));
        assert!(find_command(OsStr::new("sh"), None).is_ok());
    }

    #[test]
    fn what_cannot_run_gives_the_exit_codes_of_env() {
        let code = |missing: Missing| missing.failure(OsStr::new("x")).downcast_ref::<Failure>().unwrap().code;
        assert_eq!(code(Missing::NotFound), 127);
        assert_eq!(code(Missing::Folder("/".into())), 126);
        assert_eq!(code(Missing::NotExecutable("x".into())), 126);
    }

    #[test]
    fn a_script_is_followed_to_the_program_that_runs_it() {
        let folder = Folder::new("scripts");
        let inner = folder.file("inner", b"#! /bin/sh -e\necho\n", 0o755);
        let outer = folder.file("outer", format!("#!{}\n", inner.display()).as_bytes(), 0o755);
        assert_eq!(follow_scripts(&outer, None), [outer, inner, PathBuf::from("/bin/sh")]);
        for line in [
            "#!/usr/bin/env sh\n",
            "#!/usr/bin/env -S A=1 sh -e\n",
            "#!/usr/bin/env -i sh",
            "#!/usr/bin/env -S -u A -P /x:/y sh",
        ] {
            let script = folder.file("env", line.as_bytes(), 0o755);
            let chain = follow_scripts(&script, Some(OsStr::new("/bin")));
            assert_eq!(chain, [script, PathBuf::from("/usr/bin/env"), PathBuf::from("/bin/sh")], "{line}");
        }
    }

    #[test]
    fn a_script_that_runs_itself_ends() {
        let folder = Folder::new("loop");
        let script = folder.file("me", b"", 0o755);
        std::fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert!(follow_scripts(&script, None).len() <= MOST_SCRIPTS + 1);
    }
}
