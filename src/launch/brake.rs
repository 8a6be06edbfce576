//! The brake: a command that died twice by a fault soon after its start, while it was traced, is not traced again on this node
//! until somebody says so. Whether tracing had a part in it nobody knows; a service that restarts must not find out.
//!
//! Deaths stand in a file for each command, host and version of gputrace in the user's folder for state, a line each. Lines
//! are only ever appended, so that launchers beside each other need no lock; runs that ran beside each other died of one cause,
//! and count once. Where there is no such folder, or it is not the user's own, there is no brake.
//!
//! Programs of a session that outlives its collectors start without us: there a sign in the session's folder tells the shim
//! ([`gputrace_abi::brake`]).

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gputrace_abi::brake::{SIGN, key};
use gputrace_collectors::Fault;
use serde::{Deserialize, Serialize};

use super::exit::Ending;
use super::names::host;

/// A death so soon after the start counts.
const SOON: Duration = Duration::from_secs(60);
/// Two that lie further apart have nothing to do with each other.
const TOGETHER_MS: u64 = 24 * 3600 * 1000;
/// More of a file is not read, nor is more written to it.
const MOST_BYTES: u64 = 64 << 10;
/// How names of such files end.
const SUFFIX: &str = "deaths";
/// The signals that tell of a fault.
const FAULTS: [(i32, &str); 4] =
    [(libc::SIGSEGV, "SIGSEGV"), (libc::SIGBUS, "SIGBUS"), (libc::SIGILL, "SIGILL"), (libc::SIGABRT, "SIGABRT")];

/// How the brake is released.
pub(crate) const CURE: &str = "gputrace doctor --clear-brake traces it again";

/// The brake of one command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Brake {
    #[serde(with = "gputrace_collectors::heir::path")]
    file: PathBuf,
    /// Program and first word.
    command: String,
}

/// A run that ended by a fault, times in ms since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Death {
    start: u64,
    end: u64,
    signal: i32,
}

impl Brake {
    /// That of the program at this path with these words after its name; none where no state can be kept.
    ///
    /// The first word that is no option belongs to it: of an interpreter that is the script, and one script is not another.
    pub(crate) fn of(program: &Path, words: &[OsString]) -> Option<Brake> {
        Brake::within(&folder()?, program, &which(program, words), env!("CARGO_PKG_VERSION"))
    }

    fn within(folder: &Path, program: &Path, first: &str, version: &str) -> Option<Brake> {
        let program = program.canonicalize().ok()?;
        let exe = program.to_str().filter(|exe| !exe.contains('\n'))?;
        let name = program.file_name()?.to_str()?;
        Some(Brake::named(folder, name, exe, first, key(exe.as_bytes(), first.as_bytes(), version.as_bytes())))
    }

    /// That of a program which its process described; none where no state can be kept.
    pub(crate) fn of_process(of: &Fault) -> Option<Brake> {
        let name = Path::new(&of.exe).file_name()?.to_str().filter(|_| !of.exe.contains('\n'))?;
        Some(Brake::named(&folder()?, name, &of.exe, &of.first_word, of.program))
    }

    fn named(folder: &Path, name: &str, exe: &str, first: &str, key: u64) -> Brake {
        let shown: String = first.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let command = format!("{exe} {shown}").trim_end().to_owned();
        Brake { file: folder.join(format!("{name}-{key:016x}.{SUFFIX}")), command }
    }

    /// What the shim of such a program looks for in the session's folder.
    pub(crate) fn sign(&self) -> Option<String> {
        let (_, key) = self.file.file_stem()?.to_str()?.rsplit_once('-')?;
        Some(format!("{SIGN}{key}"))
    }

    /// The program, and its first word.
    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// By which signals it died twice; none: it is traced.
    pub(crate) fn engaged(&self) -> Option<String> {
        let [first, second] = pair(&deaths(&self.file))?;
        Some(format!("{}, {}", name(first.signal), name(second.signal)))
    }

    /// Notes how a traced run that began at `started` ended. True: from now on the brake is on.
    pub(crate) fn note(&self, ending: Ending, started: SystemTime, wall: Duration) -> io::Result<bool> {
        let Some(signal) = fault(ending, wall).filter(|_| self.engaged().is_none()) else { return Ok(false) };
        let start = started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        self.append(Death { start, end: start + wall.as_millis() as u64, signal })?;
        Ok(self.engaged().is_some())
    }

    /// What to say of a death that could not be noted: it makes no brake.
    pub(crate) fn not_noted(&self, error: &io::Error) -> String {
        let file = self.file.display();
        format!("{file}: cannot be written: {error}; so this death does not count, and a second one stops no tracing")
    }

    fn append(&self, death: Death) -> io::Result<()> {
        let Some(folder) = self.file.parent() else { return Ok(()) };
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let mut file = file.open(&self.file)?;
        // One that grew long is not written to, nor read.
        if is_ours(&file) {
            file.write_all(format!("{} {} {} {}\n", death.start, death.end, death.signal, self.command).as_bytes())?;
        }
        Ok(())
    }
}

/// The signal of an ending that counts: a fault, so long after the start.
pub(crate) fn fault(ending: Ending, wall: Duration) -> Option<i32> {
    let Ending::Signal(signal) = ending else { return None };
    (wall <= SOON && FAULTS.iter().any(|(fault, _)| *fault == signal)).then_some(signal)
}

/// Commands whose brake is on.
pub(crate) fn engaged() -> Vec<Brake> {
    engaged_or_unknown().unwrap_or_default()
}

/// The same; Err: what is known of deaths cannot be read now.
pub(crate) fn engaged_or_unknown() -> io::Result<Vec<Brake>> {
    let known = folder().map_or(Ok(Vec::new()), |folder| all(&folder))?;
    Ok(known.into_iter().filter(|brake| brake.engaged().is_some()).collect())
}

/// Forgets all deaths on this host. Returns the commands whose brake was on.
pub(crate) fn clear() -> std::io::Result<Vec<Brake>> {
    let known = folder().map_or(Ok(Vec::new()), |folder| all(&folder))?;
    let released = known.iter().filter(|brake| brake.engaged().is_some()).cloned().collect();
    known.iter().try_for_each(|brake| fs::remove_file(&brake.file))?;
    Ok(released)
}

fn all(folder: &Path) -> io::Result<Vec<Brake>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let files = entries.flatten().map(|entry| entry.path());
    let mut all: Vec<Brake> = files
        .filter(|file| file.extension().is_some_and(|suffix| suffix == SUFFIX))
        .filter_map(|file| {
            let text = read(&file)?;
            let command = text.lines().find_map(|line| Some(line.splitn(4, ' ').nth(3)?.to_owned()))?;
            Some(Brake { file, command })
        })
        .collect();
    all.sort_by(|a, b| a.command.cmp(&b.command));
    Ok(all)
}

/// The folder for this host's files; none where nobody says where state belongs.
fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")))?;
    Some(state.join("gputrace/brake").join(host()))
}

/// The first two deaths that count: one after the other, and not long after.
fn pair(deaths: &[Death]) -> Option<[Death; 2]> {
    let mut deaths = deaths.to_vec();
    deaths.sort_by_key(|death| death.end);
    let mut last: Option<Death> = None;
    for death in deaths {
        match last {
            // It ran beside the other.
            Some(last) if death.start < last.end => {}
            Some(last) if death.start - last.end < TOGETHER_MS => return Some([last, death]),
            _ => last = Some(death),
        }
    }
    None
}

fn deaths(file: &Path) -> Vec<Death> {
    let text = read(file).unwrap_or_default();
    let death = |line: &str| {
        let mut words = line.split(' ');
        let (start, end) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Death { start, end, signal: words.next()?.parse().ok()? })
    };
    text.lines().filter_map(death).collect()
}

fn read(file: &Path) -> Option<String> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(file).ok()?;
    let mut text = String::new();
    is_ours(&file).then_some(())?;
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// What tells commands of one program apart. Of `env` all words: options of its own take the one after them, and what it starts
/// comes last.
fn which(program: &Path, words: &[OsString]) -> String {
    let mut words = words.iter().map(|word| word.to_string_lossy());
    match program.file_name().is_some_and(|name| name == "env") {
        true => words.collect::<Vec<_>>().join(" "),
        false => words.find(|word| !word.starts_with('-')).unwrap_or_default().into_owned(),
    }
}

/// A plain file of the user's own, and no longer than is read.
fn is_ours(file: &File) -> bool {
    // SAFETY: geteuid has no preconditions.
    let user = unsafe { libc::geteuid() };
    file.metadata().is_ok_and(|about| about.is_file() && about.uid() == user && about.len() < MOST_BYTES)
}

fn name(signal: i32) -> &'static str {
    FAULTS.iter().find(|(fault, _)| *fault == signal).map_or("a fault", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGV: Ending = Ending::Signal(libc::SIGSEGV);

    fn noted(brake: &Brake, ending: Ending, started: SystemTime, wall: Duration) -> bool {
        brake.note(ending, started, wall).unwrap_or(false)
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
    }

    /// A brake of this test's own.
    struct Own(PathBuf, Brake);

    impl Own {
        fn new(test: &str) -> Own {
            let folder = std::env::temp_dir().join(format!("gputrace-brake-{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            let brake = Brake::within(&folder, Path::new("/bin/sh"), "job.sh", "1").expect("there is a shell");
            Own(folder, brake)
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_env_starts_tells_its_commands_apart() {
        let of = |program: &str, words: &[&str]| {
            which(Path::new(program), &words.iter().map(OsString::from).collect::<Vec<_>>())
        };
        assert_ne!(of("/usr/bin/env", &["-u", "X", "one"]), of("/usr/bin/env", &["-u", "X", "two"]));
        assert_eq!(of("/usr/bin/python3", &["-u", "train.py", "--fast"]), "train.py");
        assert_eq!(of("/usr/bin/python3", &["-V"]), "");
    }

    #[test]
    fn two_deaths_one_after_the_other_engage_it() {
        let own = Own::new("two");
        let second = Duration::from_secs(1);
        assert!(!noted(&own.1, SEGV, at(0), second));
        assert_eq!(own.1.engaged(), None);
        assert!(noted(&own.1, Ending::Signal(libc::SIGABRT), at(10), second));
        assert_eq!(own.1.engaged().as_deref(), Some("SIGSEGV, SIGABRT"));
        assert_eq!(all(&own.0).expect("a folder")[0].command(), own.1.command());
        for (first, version) in [("job.sh", "2"), ("other.sh", "1")] {
            let other = Brake::within(&own.0, Path::new("/bin/sh"), first, version).expect("a shell");
            assert_eq!(other.engaged(), None, "another version, or another script, has its own chance");
        }
    }

    #[test]
    fn other_ends_later_deaths_and_runs_beside_each_other_do_not() {
        let own = Own::new("others");
        let second = Duration::from_secs(1);
        for ending in [Ending::Code(139), Ending::Code(0), Ending::Signal(libc::SIGKILL), Ending::Signal(libc::SIGTERM)]
        {
            assert!(!noted(&own.1, ending, at(0), second) && !noted(&own.1, ending, at(10), second), "{ending:?}");
        }
        assert!(!noted(&own.1, SEGV, at(20), Duration::from_secs(61)), "it ran for long");
        assert!(!noted(&own.1, SEGV, at(100), second));
        assert!(!noted(&own.1, SEGV, at(100), Duration::from_secs(2)), "two ranks of one job");
        assert!(!noted(&own.1, SEGV, at(3 * 24 * 3600), second), "days later");
        assert!(noted(&own.1, SEGV, at(3 * 24 * 3600 + 9), second));
    }

    #[test]
    fn a_file_that_is_none_of_ours_makes_no_brake() {
        let own = Own::new("foreign");
        fs::create_dir_all(&own.0).expect("a folder");
        let target = own.0.join("elsewhere");
        fs::write(&target, "").expect("a file");
        std::os::unix::fs::symlink(&target, &own.1.file).expect("a link");
        assert!(!noted(&own.1, SEGV, at(0), SOON) && !noted(&own.1, SEGV, at(100), SOON));
        assert_eq!(fs::read(&target).expect("the file"), b"", "nothing is written through a link");
        fs::remove_file(&own.1.file).expect("the link");
        fs::write(&own.1.file, "nonsense\n1 2\n\u{0}\n").expect("a file");
        assert_eq!(own.1.engaged(), None);
    }
}
