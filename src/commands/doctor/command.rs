//! Whether a command would be traced: its file, the interpreters of a script, what keeps the shim out.

use std::ffi::OsString;

use super::Check;
use crate::launch::find_command::{Missing, find_command};
use crate::launch::inspect::{Obstacle, inspect};

pub(super) fn checks(command: &[OsString]) -> Vec<Check> {
    let Some(name) = command.first() else { return Vec::new() };
    let search = std::env::var_os("PATH");
    let path = match find_command(name, search.as_deref()) {
        Ok(path) => path,
        Err(Missing::NotFound) => {
            let cure = "check the name, or give the path of the file";
            return vec![Check::fail("command", format!("{}: not found", name.to_string_lossy()), cure)];
        }
        Err(Missing::Folder(path)) => {
            return vec![Check::fail("command", format!("{}: a folder", path.display()), "name a program in it")];
        }
        Err(Missing::NotExecutable(path)) => {
            let found = format!("{}: not executable", path.display());
            return vec![Check::fail("command", found, "chmod +x it, or name its interpreter")];
        }
    };
    let inspection = inspect(&path, search.as_deref());
    let chain = inspection.chain.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" -> ");
    vec![match &inspection.obstacle {
        None if inspection.translated => {
            let cure = "use its arm64 build: times under Rosetta are those of translated code";
            Check::note("command", format!("{chain}: will be traced, for x86_64"), cure)
        }
        None => Check::fine("command", format!("{chain}: will be traced")),
        Some(obstacle @ (Obstacle::DamagedMachO | Obstacle::MachO(_) | Obstacle::NoInterpreter(_))) => {
            Check::fail("command", format!("{chain}: would not start: {obstacle}"), obstacle.cure())
        }
        Some(obstacle) => Check::fail("command", format!("{chain}: would run untraced: {obstacle}"), obstacle.cure()),
    }]
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::launch::macho::Cpu;
    use crate::launch::macho::testing::Built;
    use crate::launch::testing::Folder;

    fn level(command: &str) -> Level {
        checks(&[OsString::from(command)])[0].level
    }

    #[test]
    fn a_command_is_judged_by_the_program_that_does_its_work() {
        let folder = Folder::new("doctor-command");
        let script = folder.file("script", b"#!/bin/sh\n", 0o755);
        let broken = folder.file("broken", b"#!/no/such/shell\n", 0o755);
        let text = folder.file("text", b"", 0o644);
        assert_eq!(level(script.to_str().unwrap()), Level::Fine);
        assert_eq!(level(broken.to_str().unwrap()), Level::Fail);
        assert_eq!(level(text.to_str().unwrap()), Level::Fail);
        assert_eq!(level(folder.path().to_str().unwrap()), Level::Fail);
        assert_eq!(level("no-such-command-anywhere"), Level::Fail);
        assert!(checks(&[]).is_empty());
        let mac = folder.file("mac", &Built::new(Cpu::Arm64).flags(0x1_0000).bytes(), 0o755);
        let line = checks(&[mac.clone().into()])[0].line();
        assert_eq!(
            line,
            format!(
                "FAIL  command         {}: would not start: a program for macOS (arm64); there it has the hardened \
            runtime, so the loader ignores DYLD_INSERT_LIBRARIES; run it on a Mac\n",
                mac.display()
            )
        );
        for (name, bytes) in
            [("cut", &Built::new(Cpu::Arm64).bytes()[..20]), ("universal", b"\xca\xfe\xba\xbe\xff\xff\xff\xff")]
        {
            let damaged = folder.file(name, bytes, 0o755);
            let line = checks(&[damaged.clone().into()])[0].line();
            let said = format!("{}: would not start: a damaged file for macOS; get it anew\n", damaged.display());
            assert_eq!(line, format!("FAIL  command         {said}"));
        }
    }
}
