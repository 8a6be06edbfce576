//! Plays a round: the victim without gputrace, then under it while the misfortune happens, to the end of all processes.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::misfortune::Misfortune;
use crate::random::Draw;
use crate::round::Round;
use crate::stage::{Ended, HANGS, LOOK, Stage};
use crate::system::{self, Limits};
use crate::truth::Truth;

/// KiB of a disk that is to become full.
const DISK_KIB: u64 = 8 << 10;

/// What was recorded so long ago is on the disk: a second by promise, and what a busy machine takes.
const WRITTEN_AFTER: Duration = Duration::from_millis(1_700);

/// What came of a round, for the judge.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// Without gputrace.
    pub(crate) plain: Ended,
    /// With it: how gputrace ended.
    pub(crate) traced: Ended,
    /// How the program itself ended, where that is known.
    pub(crate) target: Option<i32>,
    /// What the program says that it did.
    pub(crate) truth: Truth,
    /// The misfortune happened before all was over.
    pub(crate) happened: bool,
    /// Processes that had to be killed, since they did not end.
    pub(crate) left: Vec<String>,
    /// From the program's end to gputrace's.
    pub(crate) sealing: Duration,
    /// Most memory of gputrace that was its own, KiB.
    pub(crate) memory_kib: u64,
    /// Launches that had come back some time before gputrace was killed: these are on the disk.
    pub(crate) long_before: u64,
    /// What `start`, `stop` and `dump` said that they should not.
    pub(crate) asked: Vec<String>,
}

/// Plays it.
pub(crate) fn play(stage: &mut Stage<'_>, round: &Round) -> Result<Played, String> {
    let limits = match round.misfortune {
        Misfortune::FewDescriptors(most) => Limits { descriptors: Some(most), ..Limits::default() },
        Misfortune::SmallFiles(kib) => Limits { file_bytes: Some(kib << 10), ..Limits::default() },
        _ => Limits::default(),
    };
    let plain = stage.plain(round, limits)?;
    let disk = stage.folder.join("disk");
    match round.misfortune {
        Misfortune::SmallDisk(kib) => system::mount(&disk, kib, false),
        Misfortune::DiskFills => system::mount(&disk, DISK_KIB, false),
        Misfortune::ReadOnly => system::mount(&disk, 64, true),
        _ => Ok(()),
    }
    .map_err(|error| format!("no disk could be mounted: {error}"))?;
    let launcher = stage.start(round, "traced", true, limits)?;
    let mut acts = Acts::new(round, launcher, stage.folder.join("traced.truth"));
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = stage.reaper.end_of(launcher) {
            break Some(status);
        }
        if begin.elapsed() > HANGS {
            break None;
        }
        acts.look(stage)?;
        thread::sleep(LOOK);
    };
    let sealing = acts.target_ended.map_or(Duration::ZERO, |at| at.elapsed());
    let bound = if status.is_none() { Duration::ZERO } else { HANGS };
    let left = stage.until_all_ended("traced", bound);
    let truth = Truth::read(&acts.truth).map_err(|error| error.to_string())?;
    let target = if truth.root > 0 { stage.reaper.end_of(truth.root) } else { None };
    Ok(Played {
        plain,
        traced: stage.ended("traced", status),
        target,
        truth,
        happened: acts.happened,
        left,
        sealing,
        memory_kib: acts.memory_kib,
        long_before: acts.long_before,
        asked: acts.asked,
    })
}

/// Who looks on while gputrace runs, and does what is to be done.
struct Acts<'a> {
    round: &'a Round,
    launcher: i32,
    truth: std::path::PathBuf,
    draw: Draw,
    root: i32,
    root_seen: Option<Instant>,
    target_ended: Option<Instant>,
    happened: bool,
    memory_kib: u64,
    asked: Vec<String>,
    turns: u64,
    /// How many launches had come back by when.
    launched: Vec<(Instant, u64)>,
    long_before: u64,
    /// What is to be done after the misfortune, and when.
    later: Vec<(Instant, Later)>,
}

/// What follows a misfortune.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Later {
    /// gputrace goes on.
    Continue,
    /// The disk has room again.
    Room,
    /// Recording ends.
    Stop,
    /// Recording begins again.
    Start,
}

impl<'a> Acts<'a> {
    fn new(round: &'a Round, launcher: i32, truth: std::path::PathBuf) -> Acts<'a> {
        Acts {
            round,
            launcher,
            truth,
            draw: Draw::of(round.seed, "acts"),
            root: 0,
            root_seen: None,
            target_ended: None,
            happened: !round.misfortune.comes_later(),
            memory_kib: 0,
            asked: Vec::new(),
            turns: 0,
            launched: Vec::new(),
            long_before: 0,
            later: Vec::new(),
        }
    }

    fn look(&mut self, stage: &mut Stage<'_>) -> Result<(), String> {
        self.turns += 1;
        if self.turns.is_multiple_of(8) {
            self.memory_kib = self.memory_kib.max(system::own_memory_kib(self.launcher));
        }
        let wanted = self.round.misfortune == Misfortune::AllKilled && !self.happened;
        if wanted && self.turns.is_multiple_of(64) {
            let truth = Truth::read(&self.truth).unwrap_or_default();
            self.launched.push((Instant::now(), truth.processes.values().map(|did| did.done[0]).sum()));
        }
        if self.root == 0 {
            self.root = root_in(&self.truth);
            self.root_seen = (self.root != 0).then(Instant::now);
        } else if self.target_ended.is_none() && !Path::new(&format!("/proc/{}", self.root)).exists() {
            self.target_ended = Some(Instant::now());
        }
        let due = self.root_seen.is_some_and(|at| at.elapsed() >= Duration::from_millis(self.round.after_ms));
        if due && !self.happened {
            self.happened = self.happen(stage)?;
        }
        let now = Instant::now();
        if let Some(place) = self.later.iter().position(|(at, _)| *at <= now) {
            let (_, what) = self.later.remove(place);
            self.follow(stage, what)?;
        }
        Ok(())
    }

    fn in_ms(&mut self, most: u64, what: Later) {
        let after = self.draw.between(1, most);
        self.later.push((Instant::now() + Duration::from_millis(after), what));
    }

    /// False: it is to be tried again.
    fn happen(&mut self, stage: &mut Stage<'_>) -> Result<bool, String> {
        let launcher = self.launcher;
        match self.round.misfortune {
            Misfortune::TargetKilled(number) => {
                return Ok(self.target_ended.is_none() && system::signal(self.root, number));
            }
            Misfortune::ChildKilled => {
                let alive = stage.alive("traced");
                let children: Vec<i32> = alive
                    .iter()
                    .filter(|(pid, name)| *pid != self.root && name == "victim")
                    .map(|(pid, _)| *pid)
                    .collect();
                let Some(one) = children.get(self.draw.below(children.len() as u64) as usize) else { return Ok(false) };
                return Ok(system::signal(*one, libc::SIGKILL));
            }
            Misfortune::CollectorKilled => return Ok(system::signal(launcher, libc::SIGKILL)),
            Misfortune::AllKilled => {
                let mut old = self.launched.iter().filter(|(at, _)| at.elapsed() > WRITTEN_AFTER);
                self.long_before = old.next_back().map_or(0, |(_, launches)| *launches);
                system::signal(launcher, libc::SIGSTOP);
                let until = Instant::now() + HANGS;
                while !system::is_stopped(launcher) && stage.reaper.end_of(launcher).is_none() && Instant::now() < until
                {
                    thread::sleep(LOOK);
                }
                self.kill_heirs(stage);
                system::signal(launcher, libc::SIGKILL);
                // One that was being started meanwhile.
                self.kill_heirs(stage);
            }
            Misfortune::HeirKilled => return Ok(self.kill_heirs(stage)),
            Misfortune::Frozen(ms) => {
                system::signal(launcher, libc::SIGSTOP);
                self.later.push((Instant::now() + Duration::from_millis(ms), Later::Continue));
            }
            Misfortune::Asked(number) => return Ok(system::signal(launcher, number)),
            Misfortune::DiskFills => {
                fill(&stage.folder.join("disk/full"));
                if self.draw.chance(50) {
                    self.in_ms(300, Later::Room);
                }
            }
            Misfortune::TraceRemoved => {
                let _ = fs::remove_dir_all(stage.trace());
            }
            Misfortune::SessionRemoved => {
                for session in fs::read_dir(stage.folder.join("run")).into_iter().flatten().flatten() {
                    let _ = fs::remove_dir_all(session.path());
                }
            }
            Misfortune::Switched => self.follow(stage, Later::Start)?,
            Misfortune::Dumped => self.ask(stage, "dump")?,
            _ => {}
        }
        Ok(true)
    }

    fn follow(&mut self, stage: &mut Stage<'_>, what: Later) -> Result<(), String> {
        match what {
            Later::Continue => {
                system::signal(self.launcher, libc::SIGCONT);
            }
            Later::Room => {
                let _ = fs::remove_file(stage.folder.join("disk/full"));
            }
            Later::Start => {
                self.ask(stage, "start")?;
                self.in_ms(200, Later::Stop);
            }
            Later::Stop => {
                self.ask(stage, "stop")?;
                if self.draw.chance(60) {
                    self.in_ms(50, Later::Start);
                }
            }
        }
        Ok(())
    }

    /// Asks the session something. It may be over by then, which the answer says; anything else is noted.
    fn ask(&mut self, stage: &mut Stage<'_>, what: &str) -> Result<(), String> {
        let answer = stage.tool(self.round, what, &[what, &self.launcher.to_string()])?;
        let is_fine = match answer.status {
            Some(0) => !answer.stdout.is_empty(),
            Some(1 | 2) => answer.stderr.starts_with("gputrace: ") && stage.reaper.end_of(self.launcher).is_some(),
            _ => false,
        };
        // A session that ends meanwhile is still there for a moment, and answers no more.
        let ends = self.target_ended.is_some() || !Path::new(&format!("/proc/{}", self.root)).exists();
        let too_late = ends && matches!(answer.status, Some(1 | 2));
        if !is_fine && !too_late {
            self.asked.push(format!("{what}: {:?} {}", answer.status, answer.stderr.trim_end()));
        }
        Ok(())
    }

    /// Kills whoever would go on for gputrace. False: there is nobody.
    fn kill_heirs(&self, stage: &Stage<'_>) -> bool {
        let alive = stage.alive("traced");
        let heirs = alive.iter().filter(|(pid, name)| *pid != self.launcher && name.starts_with("gputrace"));
        heirs.filter(|(pid, _)| system::signal(*pid, libc::SIGKILL)).count() > 0
    }
}

/// Pid of the first process, once it is there.
fn root_in(truth: &Path) -> i32 {
    let mut word = [0; 8];
    let read = File::open(truth).and_then(|mut file| {
        file.seek(SeekFrom::Start(48))?;
        file.read_exact(&mut word)
    });
    if read.is_ok() { u64::from_le_bytes(word) as i32 } else { 0 }
}

/// Writes until there is no room.
fn fill(file: &Path) {
    let Ok(mut file) = File::create(file) else { return };
    let zeros = vec![0; 64 << 10];
    for bytes in [zeros.len(), 4096, 1] {
        for _ in 0..(DISK_KIB << 10) / bytes as u64 {
            if file.write_all(&zeros[..bytes]).is_err() {
                break;
            }
        }
    }
}
