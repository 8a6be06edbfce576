//! Whether macOS's loader will load the shim into a program, by its path, its mode and its signature.

use std::fmt;
use std::path::Path;

use super::Files;
use crate::launch::macho::{self, Cpu, Slice};
use crate::launch::shim;

/// What runs programs here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// The processor: of arm64, x86-64 is translated by Rosetta.
    pub(crate) cpu: Cpu,
    /// What the shim is built for.
    pub(crate) shim: Vec<Cpu>,
}

impl Host {
    /// This machine, with the shim that is installed.
    pub(crate) fn here() -> Host {
        let cpu = if cfg!(target_arch = "aarch64") { Cpu::Arm64 } else { Cpu::X86_64 };
        let slices = shim::find_library(shim::SHIM).ok().and_then(|file| macho::read_file(&file));
        let shim = slices.map_or(vec![cpu], |slices| slices.iter().map(|slice| slice.cpu).collect());
        Host { cpu, shim }
    }
}

#[cfg(test)]
impl Host {
    /// With a shim for all that can be traced.
    pub(crate) fn universal(cpu: Cpu) -> Host {
        Host { cpu, shim: vec![Cpu::X86_64, Cpu::Arm64] }
    }
}

/// Why a program would lose the shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Pointers are signed there, and an arm64 library is another ABI.
    Arm64e,
    /// The hardened runtime, without the entitlement to DYLD variables.
    Hardened,
    /// The shim has no slice for it.
    NoSlice { program: Cpu },
    /// Setuid or setgid.
    Privileged,
    /// One of Apple's own, under system integrity protection.
    Protected,
    /// Signed so, or by a segment __RESTRICT.
    Restricted,
    /// Libraries must be signed by Apple or its own team.
    Validated,
}

impl Why {
    /// Whether a shim in the environment would end the program, where others ignore it: its loader gives up when it cannot
    /// load what it was told to.
    pub(crate) fn is_deadly(&self) -> bool {
        matches!(self, Why::Arm64e | Why::NoSlice { .. } | Why::Validated)
    }

    /// What the user can do about it.
    pub(crate) fn cure(&self) -> &'static str {
        match self {
            Why::Arm64e => "use or build its arm64 slice",
            Why::Hardened => {
                "build it without the hardened runtime, or sign it anew with the entitlements \
                 com.apple.security.cs.allow-dyld-environment-variables and com.apple.security.cs.disable-library-validation"
            }
            Why::NoSlice { .. } => "use a build for this machine's processor, or the universal shim",
            Why::Privileged => "run gputrace as the user whose rights it takes: sudo gputrace -- ...",
            Why::Protected => "use a build of it that is not part of macOS, Homebrew's for example",
            Why::Restricted => "sign a copy of it anew without that: codesign -f -s - COPY",
            Why::Validated => {
                "sign it anew with the entitlement com.apple.security.cs.disable-library-validation, or without that flag"
            }
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Arm64e => f.write_str("is built for arm64e, whose processes load no arm64 library"),
            Why::Hardened => f.write_str("has the hardened runtime, so the loader ignores DYLD_INSERT_LIBRARIES"),
            Why::NoSlice { program } => write!(f, "is built for {program}, for which this shim is not"),
            Why::Privileged => f.write_str("is setuid or setgid, so the loader ignores DYLD_INSERT_LIBRARIES"),
            Why::Protected => f.write_str(
                "is part of macOS, whose protection (SIP) takes DYLD_INSERT_LIBRARIES from it and from all that it starts",
            ),
            Why::Restricted => f.write_str("is restricted, so the loader ignores DYLD_INSERT_LIBRARIES"),
            Why::Validated => f.write_str("takes only libraries that Apple or its own team has signed"),
        }
    }
}

/// Judges the file of a program. None: nothing is in the way, or it cannot be read.
pub(super) fn of_file(path: &Path, files: &impl Files, host: &Host) -> Option<Why> {
    if is_protected(path) || is_protected(&files.target(path)) {
        return Some(Why::Protected);
    }
    if files.is_privileged(path) {
        return Some(Why::Privileged);
    }
    let slices = files.slices(path)?;
    of_slice(running(&slices, host)?, host)
}

/// Whether system integrity protection covers this path. The volume of data, on which users' folders lie, has a second name under
/// /System.
fn is_protected(path: &Path) -> bool {
    const DATA: &str = "/System/Volumes/Data";
    if let Ok(rest) = path.strip_prefix(DATA) {
        return is_protected(&Path::new("/").join(rest));
    }
    let under = |folder: &str| path.starts_with(folder);
    under("/bin") || under("/sbin") || under("/System") || under("/usr") && !under("/usr/local")
}

/// The slice of a file that the kernel would run.
///
/// An arm64e slice beside an arm64 one runs in Apple's programs only, which are protected anyway.
pub(super) fn running<'a>(slices: &'a [Slice], host: &Host) -> Option<&'a Slice> {
    let wanted: &[Cpu] = match host.cpu {
        Cpu::Arm64 => &[Cpu::Arm64, Cpu::Arm64e, Cpu::X86_64],
        _ => &[Cpu::X86_64],
    };
    wanted.iter().find_map(|cpu| slices.iter().find(|slice| slice.cpu == *cpu)).or(slices.first())
}

pub(super) fn of_slice(slice: &Slice, host: &Host) -> Option<Why> {
    let signature = slice.signature;
    if slice.restricted || signature.is_restricted() {
        Some(Why::Restricted)
    } else if signature.is_hardened() && !signature.allows_dyld {
        Some(Why::Hardened)
    } else if slice.cpu == Cpu::Arm64e {
        Some(Why::Arm64e)
    } else if !host.shim.contains(&slice.cpu) {
        Some(Why::NoSlice { program: slice.cpu })
    } else if signature.validates_libraries() {
        Some(Why::Validated)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::mac::testing::Tree;
    use crate::launch::macho::testing::{ALLOW_DYLD, Built, DISABLE_VALIDATION, fat};

    fn judged(bytes: &[u8]) -> Option<Why> {
        let mut tree = Tree::default();
        tree.program("/w/p", bytes);
        of_file(Path::new("/w/p"), &tree, &Host::universal(Cpu::Arm64))
    }

    #[test]
    fn each_way_of_losing_the_shim_is_recognised() {
        let built = || Built::new(Cpu::Arm64);
        let hardened = || built().flags(0x1_0000);
        let cases = [
            (built(), None),
            (built().flags(0x2_0002), None),
            (hardened(), Some(Why::Hardened)),
            (hardened().entitled(&[DISABLE_VALIDATION]), Some(Why::Hardened)),
            (hardened().entitled(&[ALLOW_DYLD]), Some(Why::Validated)),
            (hardened().entitled(&[ALLOW_DYLD, DISABLE_VALIDATION]), None),
            (built().flags(0x2000), Some(Why::Validated)),
            (built().flags(0x800), Some(Why::Restricted)),
            (built().restricted(), Some(Why::Restricted)),
            (Built::new(Cpu::Arm64e), Some(Why::Arm64e)),
            (Built::new(Cpu::X86_64), None),
            (Built::new(Cpu::Other(7)), Some(Why::NoSlice { program: Cpu::Other(7) })),
        ];
        for (built, why) in cases {
            assert_eq!(judged(&built.bytes()), why, "{why:?}");
        }
        assert_eq!(judged(b"\xcf\xfa\xed\xfe and nothing else"), None);
    }

    #[test]
    fn of_several_slices_the_one_that_runs_is_judged() {
        let plain = Built::new(Cpu::X86_64).bytes();
        let hardened = Built::new(Cpu::Arm64).flags(0x1_0000).bytes();
        let both = fat(&[(Cpu::X86_64, &plain), (Cpu::Arm64, &hardened)], false);
        assert_eq!(judged(&both), Some(Why::Hardened));
        let mut tree = Tree::default();
        tree.program("/w/p", &both);
        assert_eq!(of_file(Path::new("/w/p"), &tree, &Host::universal(Cpu::X86_64)), None);
        let signed = Built::new(Cpu::Arm64e).bytes();
        let arm = Built::new(Cpu::Arm64).bytes();
        assert_eq!(judged(&fat(&[(Cpu::Arm64e, &signed), (Cpu::Arm64, &arm)], true)), None);
    }

    #[test]
    fn protection_goes_by_the_path_of_the_file_itself() {
        for path in ["/bin/sh", "/usr/bin/env", "/sbin/md5", "/System/Library/x", "/usr/libexec/y"] {
            assert!(is_protected(Path::new(path)), "{path}");
        }
        for path in [
            "/System/Volumes/Data/Users/a/bin/sh",
            "/usr/local/bin/python3",
            "/opt/homebrew/bin/bash",
            "/binary",
            "/Users/a/bin/sh",
            "bin/sh",
        ] {
            assert!(!is_protected(Path::new(path)), "{path}");
        }
        let mut tree = Tree::default();
        tree.program("/bin/zsh", &Built::new(Cpu::Arm64e).bytes());
        tree.link("/usr/local/bin/zsh", "/bin/zsh");
        let host = Host::universal(Cpu::Arm64);
        assert_eq!(of_file(Path::new("/usr/local/bin/zsh"), &tree, &host), Some(Why::Protected));
        tree.program("/w/su", &Built::new(Cpu::Arm64).bytes());
        tree.lend("/w/su");
        assert_eq!(of_file(Path::new("/w/su"), &tree, &host), Some(Why::Privileged));
    }

    #[test]
    fn what_would_end_a_program_is_told_from_what_it_ignores() {
        let deadly = [Why::Arm64e, Why::NoSlice { program: Cpu::X86_64 }, Why::Validated];
        assert!(deadly.iter().all(Why::is_deadly));
        assert!(![Why::Hardened, Why::Privileged, Why::Protected, Why::Restricted].iter().any(Why::is_deadly));
    }
}
