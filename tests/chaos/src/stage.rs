//! Runs things in a round's folder: the victim alone, the victim under gputrace, gputrace's other commands. Every wait ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::products::Products;
use crate::round::Round;
use crate::system::{self, Limits, Reaper};

/// Nothing takes this long; what does hangs, and is ended.
pub(crate) const HANGS: Duration = Duration::from_secs(60);

/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(2);

/// A round's folder and all that is used in it.
pub(crate) struct Stage<'a> {
    pub(crate) products: &'a Products,
    pub(crate) reaper: &'a mut Reaper,
    /// The folder.
    pub(crate) folder: PathBuf,
    /// Tells this round's processes from all others.
    mark: String,
}

/// How something ended: its exit code, or minus the signal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ended {
    /// None: it hung, or nobody knows.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl<'a> Stage<'a> {
    /// A new folder. Its path is short, since sockets lie below it.
    pub(crate) fn new(products: &'a Products, reaper: &'a mut Reaper, seed: u64) -> Result<Stage<'a>, String> {
        let name = format!("gt-chaos-{}-{seed}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        let _ = fs::remove_dir_all(&folder);
        for part in ["run", "state", "disk", "at"] {
            fs::create_dir_all(folder.join(part)).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        Ok(Stage { products, reaper, folder, mark: name })
    }

    /// Where the trace is to be; on a disk of its own when one is mounted there.
    pub(crate) fn trace(&self) -> PathBuf {
        self.folder.join("disk/t")
    }

    /// What begins with this environment, in this folder, and writes into files called after it.
    fn command(&self, program: &Path, round: &Round, name: &str) -> Result<Command, String> {
        let mut command = Command::new(program);
        for variable in ["LD_PRELOAD", "GPUTRACE", "GPUTRACE_SESSION", "FAKE_CUDA_TRUTH", "FAKE_CUDA_FAIL"] {
            command.env_remove(variable);
        }
        command.env("LD_LIBRARY_PATH", self.products.driver(round.program.driver));
        command.env("XDG_RUNTIME_DIR", self.folder.join("run")).env("XDG_STATE_HOME", self.folder.join("state"));
        command.env("CHAOS_ROUND", format!("{}-{name}", self.mark));
        command.envs(round.variables());
        command.current_dir(self.folder.join("at")).stdin(Stdio::null());
        let file = |end: &str| File::create(self.folder.join(format!("{name}.{end}"))).map_err(|e| e.to_string());
        command.stdout(file("out")?).stderr(file("err")?);
        Ok(command)
    }

    /// Processes of `name` that live, by pid and their own name.
    pub(crate) fn alive(&self, name: &str) -> Vec<(i32, String)> {
        system::marked(&format!("CHAOS_ROUND={}-{name}", self.mark))
    }

    /// Starts the victim alone, or under gputrace.
    pub(crate) fn start(&mut self, round: &Round, name: &str, traced: bool, limits: Limits) -> Result<i32, String> {
        let truth = self.folder.join(format!("{name}.truth"));
        crate::truth::create(&truth).map_err(|error| error.to_string())?;
        let program = if traced { &self.products.gputrace } else { &self.products.victim };
        let mut command = self.command(program, round, name)?;
        if traced {
            command.args(&round.options.words).arg("-o").arg(self.trace()).arg("--").arg(&self.products.victim);
        }
        command.arg(&truth).arg(&round.plan);
        system::prepare(&mut command, limits);
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        // How it ended the reaper knows.
        Ok(child.id() as i32)
    }

    /// What a run wrote.
    pub(crate) fn ended(&self, name: &str, status: Option<i32>) -> Ended {
        let read = |end: &str| fs::read(self.folder.join(format!("{name}.{end}"))).unwrap_or_default();
        Ended { status, stdout: read("out"), stderr: String::from_utf8_lossy(&read("err")).into_owned() }
    }

    /// Waits until nothing of `name` is left, and says what had to be killed.
    pub(crate) fn until_all_ended(&mut self, name: &str, bound: Duration) -> Vec<String> {
        let until = Instant::now() + bound;
        loop {
            self.reaper.look();
            let alive = self.alive(name);
            if alive.is_empty() {
                return Vec::new();
            }
            if Instant::now() > until {
                let names = alive.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
                for (pid, _) in alive {
                    system::signal(pid, libc::SIGKILL);
                }
                return names;
            }
            // To look through all processes takes longer than to sleep.
            thread::sleep(4 * LOOK);
        }
    }

    /// Waits for the end of a process that was started here, and of all that it started; None: they had to be killed.
    fn finish(&mut self, name: &str, pid: i32) -> (Option<i32>, Vec<String>) {
        let until = Instant::now() + HANGS;
        while self.reaper.end_of(pid).is_none() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        let status = self.reaper.end_of(pid);
        let bound = if status.is_none() { Duration::ZERO } else { HANGS };
        let left = self.until_all_ended(name, bound);
        (status.filter(|_| left.is_empty()), left)
    }

    /// The victim alone, to the end of all its processes.
    pub(crate) fn plain(&mut self, round: &Round, limits: Limits) -> Result<Ended, String> {
        let pid = self.start(round, "plain", false, limits)?;
        let (status, left) = self.finish("plain", pid);
        if status.is_none() {
            return Err(format!("the victim hangs without gputrace: {left:?}"));
        }
        Ok(self.ended("plain", status))
    }

    /// One of gputrace's other commands.
    pub(crate) fn tool(&mut self, round: &Round, name: &str, arguments: &[&str]) -> Result<Ended, String> {
        let mut command = self.command(&self.products.gputrace, round, name)?;
        command.args(arguments);
        system::prepare(&mut command, Limits::default());
        let child = command.spawn().map_err(|error| format!("gputrace {name}: {error}"))?;
        let (status, _) = self.finish(name, child.id() as i32);
        Ok(self.ended(name, status))
    }
}
