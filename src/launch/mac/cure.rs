//! What to do where a program of macOS itself takes the shim away, in one line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::judge::{self, Host, Why};
use super::{Files, shims};

/// What to do about `by`, which is on the way `chain`. `behind`: what the version manager's shim on it leads to, where that is known.
pub(super) fn cure(
    by: &Path,
    why: &Why,
    chain: &[PathBuf],
    behind: Option<&Path>,
    files: &impl Files,
    host: &Host,
) -> String {
    if *why != Why::Protected {
        return why.cure().to_owned();
    }
    let last = chain.last().map_or(by, |path| path);
    let Some(script) = chain.first().filter(|first| first.as_path() != by) else { return of_command(by, why) };
    if shims::is_shim(script, files) {
        // What is met on the way to a program that is not known is the shim's own shell.
        return match behind.filter(|program| judge::of_file(program, files, host).is_none()) {
            Some(program) => format!("call what it leads to directly: gputrace -- {} ...", program.display()),
            None => {
                "call what it leads to directly: its version manager says where that is (pyenv which python)".to_owned()
            }
        };
    }
    let script = script.display();
    if last != by && judge::of_file(last, files, host).is_none() {
        return format!("call its interpreter directly: gputrace -- {} {script} ...", last.display());
    }
    if is_named(last, "python") {
        return OTHER_PYTHON.to_owned();
    }
    if shims::is_shell(last) {
        return format!(
            "run the script's command itself, or by a shell that is not Apple's (brew install bash): gputrace -- \
             /opt/homebrew/bin/bash {script} ..."
        );
    }
    match last.file_name().filter(|_| !is_named(last, "env")) {
        Some(name) => {
            let name = name.display();
            format!(
                "run it by a {name} that is not part of macOS, Homebrew's for example: gputrace -- /opt/homebrew/bin/{name} {script} ..."
            )
        }
        None => format!("call its interpreter directly: gputrace -- INTERPRETER {script} ..."),
    }
}

const OTHER_PYTHON: &str = "call a Homebrew, uv or pyenv interpreter directly";

/// The same of the command itself.
fn of_command(by: &Path, why: &Why) -> String {
    match by {
        by if is_named(by, "python") => OTHER_PYTHON.to_owned(),
        by if is_named(by, "env") => {
            "leave env out: VARIABLE=value gputrace -- PROGRAM passes variables on as well".to_owned()
        }
        by if shims::is_shell(by) => {
            "run the shell's command itself, or use a shell that is not Apple's (brew install bash)".to_owned()
        }
        _ => why.cure().to_owned(),
    }
}

fn is_named(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name: &OsStr| name.as_bytes().starts_with(start.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::super::super::macho::Cpu;
    use super::super::super::macho::testing::Built;
    use super::super::testing::Tree;
    use super::super::{Stripped, follow};
    use super::*;

    /// Apple's programs, and a Homebrew's bash.
    fn tree() -> Tree {
        let mut tree = Tree::default();
        for name in ["/bin/bash", "/usr/bin/env", "/usr/bin/perl", "/usr/bin/ruby", "/opt/homebrew/bin/bash"] {
            tree.program(name, &Built::new(Cpu::Arm64).bytes());
        }
        tree.set("PATH", "/usr/bin:/bin");
        tree
    }

    #[track_caller]
    fn stripped(tree: &Tree, path: &str) -> Stripped {
        follow(Path::new(path), tree, &Host::universal(Cpu::Arm64)).stripped.expect("somebody takes the shim away")
    }

    #[test]
    fn a_script_by_env_of_a_program_of_macos_is_told_to_use_another_one() {
        let mut tree = tree();
        tree.program("/w/run", b"#!/usr/bin/env bash\n");
        tree.program("/w/count", b"#!/usr/bin/env perl\n");
        tree.program("/w/none", b"#!/usr/bin/env no-such-program\n");
        let found = stripped(&tree, "/w/run");
        assert_eq!(found.by, Path::new("/usr/bin/env"));
        assert!(found.cure.ends_with("gputrace -- /opt/homebrew/bin/bash /w/run ..."), "{}", found.cure);
        let found = stripped(&tree, "/w/count").cure;
        assert!(found.ends_with("gputrace -- /opt/homebrew/bin/perl /w/count ..."), "{found}");
        let found = stripped(&tree, "/w/none").cure;
        assert!(found.contains("INTERPRETER /w/none"), "{found}");
    }

    #[test]
    fn a_shim_whose_version_is_not_known_is_not_taken_for_its_shell() {
        let mut tree = tree();
        // Homebrew's bash is the first one: free, and not what the shim leads to.
        tree.set("PATH", "/opt/homebrew/bin:/usr/bin:/bin");
        let text = "#!/usr/bin/env bash\nexport PYENV_ROOT=\"/Users/a/.pyenv\"\nexec \"pyenv\" exec \"$program\"\n";
        tree.program("/Users/a/.pyenv/shims/python", text.as_bytes());
        tree.file("/Users/a/.pyenv/version", b"system\n");
        let found = stripped(&tree, "/Users/a/.pyenv/shims/python").cure;
        assert!(found.contains("pyenv which python") && !found.contains("/bash"), "{found}");
    }
}
