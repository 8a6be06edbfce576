//! Options of `record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gputrace_collectors::counters::MOST_HZ;
use gputrace_collectors::redact::Redact;

use super::capture::{CaptureArgs, CaptureRange};
use super::detail::{DetailArgs, DetailKind};
use super::limits::{LimitArgs, parse_size};
use super::malloc::MallocArgs;
use super::metrics::MetricsArgs;

/// Options of `record`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace [record] [OPTIONS] -- COMMAND [ARGS...]",
    after_help = "Exit code: the command's own; if signal N ended it gputrace ends by the same signal, which a shell shows as \
                  128+N. 125 if gputrace failed before the start, 126 if the command cannot be executed, 127 if it was \
                  not found.\n\nExamples:\n  gputrace -- python train.py\n  \
                  gputrace -o run-%j --malloc off -- python train.py --epochs 3\n  \
                  srun gputrace -o /scratch/trace-%j -- python train.py     (all ranks share one trace)"
)]
pub(crate) struct RecordArgs {
    /// Folder of the trace. %h is the host, %p the pid, %r the rank, %j the job's id, %% a percent sign
    ///
    /// Default: gputrace-COMMAND-TIME in the current folder, TIME in UTC. Several launchers of one job may name the same
    /// folder. Example: -o /scratch/trace-%j
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Host memory.
    #[command(flatten)]
    pub(crate) malloc: MallocArgs,

    /// In which processes waits for the operating system are recorded: cuda, all or off
    ///
    /// Locks, threads, files, pipes, sockets, sleeps, children. cuda means processes from their first look at the CUDA
    /// driver on, and the children that they fork then (a DataLoader's workers). Example: --os all
    #[arg(long, value_enum, value_name = "WHERE", default_value = "cuda")]
    pub(crate) os: OsWaits,

    /// How long a wait for the operating system must be to become an event, in microseconds; shorter ones are counted
    ///
    /// Example: --os-over 100
    #[arg(long, value_name = "US", default_value_t = OS_OVER_US, allow_negative_numbers = true)]
    pub(crate) os_over: u64,

    /// How much is kept, and for how long.
    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// Which single events.
    #[command(flatten)]
    pub(crate) detail: DetailArgs,

    /// Shared memory for the events of one process, in bytes or with K, M, G (powers of 1024)
    ///
    /// It bounds how long the collector may be kept from running without loss. No process has less than 3.6M. Example: --segment-memory 64M
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) segment_memory: u64,

    /// How driver calls are reached: auto, symbols or inline
    ///
    /// auto and symbols take the places of the driver's symbols and answer look-ups; what only inline would reach is
    /// noted in the manifest. inline also patches the driver's functions in memory, when the loader has mapped them and
    /// before anybody can call them: it sees calls of libraries opened RTLD_DEEPBIND or in a namespace of their own, and
    /// of addresses found by hand. Example: --hook inline
    #[arg(long, value_enum, value_name = "ROUTE", default_value = "auto")]
    pub(crate) hook: HookRoute,

    /// What a call does that finds its process's memory full: drop its event and count it, or block
    ///
    /// block loses nothing and can slow the command down: what --malloc full does unless told, where drop is the rule otherwise.
    /// Example: --on-full block
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_full: Option<OnFull>,

    /// Whether stacks of Python lines, or of native functions, are taken: on or off
    #[arg(long, value_enum, value_name = "WHAT", default_value = "on")]
    pub(crate) stacks: Switch,

    /// Ask the servers of DEBUGINFOD_URLS for debugging information of native code that is not on this machine
    ///
    /// By elfutils' debuginfod-find, which keeps what it gets in its cache. Nothing is asked of a network without this. Example:
    /// --debuginfod
    #[arg(long)]
    pub(crate) debuginfod: bool,

    /// Driver calls that took at least so long get a stack, in microseconds
    ///
    /// Waits, copies, allocations, module loading: whatever held the thread up. Example: --stacks-over 100
    #[arg(long, value_name = "US", default_value_t = STACKS_OVER_US, allow_negative_numbers = true)]
    pub(crate) stacks_over: u32,

    /// One launch in so many, drawn at random, gets a stack; 0 for none
    ///
    /// Launches that follow a pause of their thread get one as well, unless this is 0. Example: --launch-stacks 100
    #[arg(long, value_name = "N", default_value_t = LAUNCH_STACKS, allow_negative_numbers = true)]
    pub(crate) launch_stacks: u32,

    /// Whether ranges named with NVTX are recorded: on or off
    ///
    /// off leaves NVTX_INJECTION64_PATH as it is: NVTX loads what it would load without gputrace, such as an injection
    /// that is linked into the program. Example: --nvtx off
    #[arg(long, value_enum, value_name = "WHAT", default_value = "on")]
    pub(crate) nvtx: Switch,

    /// Whether it is recorded when the GPU ran what: off, auto, events, windows or full
    ///
    /// events times about one launch of a kernel in 64 by two events around it, and each graph and each launch of NCCL: without
    /// CUPTI, and beside the program's own profiler. How busy the GPU is, and with which kernels, is then estimated.
    /// full asks the CUPTI of the program's own CUDA for every kernel, copy and set, which costs the launching thread about 0.6 us
    /// each and the GPU about 0.25 us. windows does so in one window every ten seconds, as long as --budget allows, and at the same
    /// moments in all ranks of a job; reports on the GPU are then about the windows. Not while the program's own profiler uses
    /// CUPTI. auto is windows, so short that fewer than one step in a hundred is slower for them, and events while CUPTI cannot be used or windows cannot be paid for; full and windows go on with events
    /// too where CUPTI cannot be used at all. Example: --gpu-time auto
    #[arg(long, value_enum, value_name = "HOW", default_value = "off")]
    pub(crate) gpu_time: GpuTime,

    /// What else CUPTI is asked for, where it is used: overhead, sync, unified-memory, separated by commas, or none
    ///
    /// overhead is what CUPTI itself and the loading of code took, and is nearly free. sync, waits as CUPTI sees them, and
    /// unified-memory, pages of managed memory that moved and faults, are for --gpu-time full only: with sync each wait costs
    /// 0.1 to 0.2 us, and CUPTI numbers calls so that fewer kernels may find theirs; unified-memory takes 20 ms at the first
    /// allocation of such memory and 10 to 20 ms in each flush. Example: --gpu-activity overhead,unified-memory
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',', default_value = "overhead")]
    pub(crate) gpu_activity: Vec<GpuActivity>,

    /// When recording is on.
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,

    /// What recording may cost, in percent of the wall time: the dearest detail is left out first
    ///
    /// Windows of GPU times get shorter, then rarer: what a record costs is measured by how much launches take longer inside
    /// windows than before them. A quarter is theirs whatever the hooks cost. Where the hooks alone cost more than the rest, stacks are left out, then samples of malloc get rarer, then no window opens, then launches of kernels are only counted but for one in 8 or 64 (not with --gpu-time full), and all is recorded again when the load has gone. What was left out is counted, and the report says what, when, and what was spent.
    /// Unless told, 1 for windows, and nothing else is left out. Example: --budget 0.5
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, allow_negative_numbers = true)]
    pub(crate) budget: Option<f64>,

    /// How often a window of GPU times opens, in seconds
    ///
    /// At a moment that is drawn anew for each. 10 unless told; only with --gpu-time windows or auto. Example: --gpu-window-every 2
    #[arg(long, value_name = "SECONDS", value_parser = parse_period, allow_negative_numbers = true)]
    pub(crate) gpu_window_every: Option<Duration>,

    /// How often counters of devices and processes are read from outside, per second, at most 10; or off
    ///
    /// NVML (utilisation, memory, power, clocks and why they are low, PCIe, ECC, Xid) and GPM (multiprocessors, tensor pipes,
    /// memory bandwidth, from Hopper on) of the devices that traced processes see; processor time, memory, page faults and
    /// throttling of the processes. Nothing of it happens in them. Example: --counters 10
    #[arg(long, value_name = "HZ", default_value = "1", value_parser = parse_hz, allow_negative_numbers = true)]
    pub(crate) counters: Hz,

    /// Whether processor counters of the processes are read as well: cycles, instructions, cache and branch misses
    ///
    /// By perf_event_open, in user mode, where the kernel allows it. The kernel then has more to do whenever it switches threads.
    /// Example: --cpu-counters on
    #[arg(long, value_enum, value_name = "WHAT", default_value = "off")]
    pub(crate) cpu_counters: Switch,

    /// Length of the periods in which all events are added up, in seconds, at least 1; or off
    ///
    /// The tables rollups and rollup_names hold their sums, whatever becomes of the single events: what --max-size or --keep-detail removes stays known,
    /// and what sampling leaves out is counted. Example: --rollup 10
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_rollup, allow_negative_numbers = true)]
    pub(crate) rollup: Rollup,

    /// How long a call may stand still until it is reported as a hang, in seconds; 0 for never
    ///
    /// A driver or NCCL call that has not returned for so long, while nothing that it waits for was seen to go on. A few lines on
    /// stderr, and in the trace a report (TRACE/hangs/) on all threads of the process with their frames, its
    /// streams and its communicators, and which ranks have not come. The command runs on, and so does tracing. Example: --hang-after 60
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) hang_after: Duration,

    /// What other programs are told.
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,

    /// Names of options and variables whose values are not written into the trace; off: all is
    ///
    /// Values of names such as password, token, secret and api-key, passwords in addresses and what looks like the key of a
    /// well-known service are left out of command lines anyway. Separated by commas. Example: --redact run-id,customer
    #[arg(long, value_name = "NAMES", default_value = "", hide_default_value = true, value_parser = parse_redact)]
    pub(crate) redact: Redact,

    /// How long to wait for processes that outlive the command, in seconds
    ///
    /// What they do later is not recorded. Example: --grace 0.5
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) grace: Duration,

    /// The command and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    /// Variables that the command gets besides; no option, for `demo`
    #[arg(skip)]
    pub(crate) variables: Vec<(&'static str, OsString)>,

    /// Folder in which the simulated driver leaves what its device did; no option, for `demo`
    #[arg(skip)]
    pub(crate) simulated: Option<PathBuf>,
}

impl RecordArgs {
    /// The defaults, for a command.
    pub(crate) fn new(output: Option<PathBuf>, command: Vec<OsString>) -> RecordArgs {
        RecordArgs {
            output,
            malloc: MallocArgs::default(),
            os: OsWaits::Cuda,
            os_over: OS_OVER_US,
            limits: LimitArgs::default(),
            detail: DetailArgs::default(),
            capture: CaptureArgs::default(),
            segment_memory: 16 << 20,
            hook: HookRoute::Auto,
            on_full: None,
            stacks: Switch::On,
            debuginfod: false,
            stacks_over: STACKS_OVER_US,
            launch_stacks: LAUNCH_STACKS,
            nvtx: Switch::On,
            gpu_time: GpuTime::Off,
            gpu_activity: vec![GpuActivity::Overhead],
            counters: Hz(Some(1.0)),
            cpu_counters: Switch::Off,
            rollup: Rollup(Some(Duration::from_secs(1))),
            budget: None,
            gpu_window_every: None,
            hang_after: HANG_AFTER,
            metrics: MetricsArgs::default(),
            redact: Redact::default(),
            grace: Duration::from_secs(2),
            command,
            variables: Vec::new(),
            simulated: None,
        }
    }

    /// Err: what of the options says nothing beside the others, and what it belongs to.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.gpu_window_every.is_some() && !matches!(self.gpu_time, GpuTime::Windows | GpuTime::Auto) {
            return Err(
                "--gpu-window-every is about windows of GPU times: it belongs to --gpu-time windows or --gpu-time auto"
                    .to_owned(),
            );
        }
        if self.gpu_time != GpuTime::Full && self.gpu_activity.iter().any(|kind| kind.costs_on()) {
            return Err(
                "--gpu-activity sync and unified-memory cost the program something between windows too: they belong to --gpu-time full"
                    .to_owned(),
            );
        }
        self.capture.check()?;
        if self.nvtx == Switch::Off && matches!(self.capture.range()?, CaptureRange::Nvtx | CaptureRange::Steps) {
            return Err("--nvtx off: no range would ever begin that switches recording on".to_owned());
        }
        self.detail.check(self.counters.0.is_some())?;
        self.limits.check(self.rollup.0.is_some())?;
        if self.detail.detail == DetailKind::Rollup && self.rollup.0.is_none() && !self.metrics.are_told() {
            return Err("--detail rollup keeps sums alone: with --rollup off nothing would be kept".to_owned());
        }
        self.malloc.check()
    }
}

/// Default of `--budget`, in percent.
pub(crate) const BUDGET: f64 = 1.0;
/// Default of `--gpu-window-every`.
pub(crate) const GPU_WINDOW_EVERY: Duration = Duration::from_secs(10);
/// Default of `--hang-after`.
const HANG_AFTER: Duration = Duration::from_secs(300);
/// Default of `--stacks-over`.
const STACKS_OVER_US: u32 = 20;
/// Default of `--launch-stacks`.
const LAUNCH_STACKS: u32 = 1000;
/// Waits shorter than this are only counted, in microseconds.
const OS_OVER_US: u64 = 20;

/// In which processes waits for the operating system are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OsWaits {
    /// In those that use CUDA, from then on, and in the children that they fork.
    Cuda,
    /// In every process.
    All,
    /// In none.
    Off,
}

/// How driver calls are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookRoute {
    /// What changes nothing in the driver: by symbols.
    Auto,
    /// By the driver's symbols and look-ups.
    Symbols,
    /// By these, and by patches of the driver's functions.
    Inline,
}

/// What happens when a process's memory for events is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFull {
    /// The event is dropped and counted.
    Drop,
    /// The call waits for the collector.
    Block,
}

/// Whether it is recorded when the GPU ran what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GpuTime {
    /// Not.
    Off,
    /// In windows where CUPTI can be used, else by events.
    Auto,
    /// Some launches, by events around them.
    Events,
    /// Now and then all of it.
    Windows,
    /// All of it.
    Full,
}

/// What CUPTI is asked for beside the GPU's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GpuActivity {
    /// What CUPTI and the loading of code took.
    Overhead,
    /// Waits.
    Sync,
    /// Managed memory that moved, and faults.
    UnifiedMemory,
    /// Nothing.
    None,
}

impl GpuActivity {
    /// What it costs goes on when records are off.
    fn costs_on(self) -> bool {
        matches!(self, GpuActivity::Sync | GpuActivity::UnifiedMemory)
    }
}

/// Readings of counters per second; none for off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hz(pub(crate) Option<f64>);

/// Length of the periods of rollups; none for off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rollup(pub(crate) Option<Duration>);

/// A part of tracing that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// It is done.
    On,
    /// It is left alone.
    Off,
}

/// A share of the wall time: a number of percent up to 100, with or without the sign.
pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.strip_suffix('%').unwrap_or(text).trim().parse().ok();
    let number = number.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    number.ok_or_else(|| "expected a percentage above 0 and up to 100, such as 0.5".to_owned())
}

/// A number of seconds from half of one to an hour: what was given in a window is mostly told before the next.
pub(super) fn parse_period(text: &str) -> Result<Duration, String> {
    let period = parse_seconds(text)?;
    let fits = period >= Duration::from_millis(500) && period <= Duration::from_secs(3600);
    if fits { Ok(period) } else { Err("expected a number of seconds from 0.5 to 3600".to_owned()) }
}

/// A number of seconds from 1 to an hour, or off.
fn parse_rollup(text: &str) -> Result<Rollup, String> {
    if text == "off" {
        return Ok(Rollup(None));
    }
    let period = parse_seconds(text).ok().filter(|p| (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(p));
    period
        .map(|period| Rollup(Some(period)))
        .ok_or_else(|| "expected a number of seconds from 1 to 3600, or off".to_owned())
}

/// Names separated by commas, or off.
fn parse_redact(text: &str) -> Result<Redact, String> {
    if text == "off" {
        return Ok(Redact { off: true, names: Vec::new() });
    }
    let plain = |name: &str| name.trim().trim_start_matches('-').to_lowercase().replace(['_', '.'], "-");
    Ok(Redact { off: false, names: text.split(',').map(plain).filter(|name| !name.is_empty()).collect() })
}

pub(super) fn parse_hz(text: &str) -> Result<Hz, String> {
    if text == "off" {
        return Ok(Hz(None));
    }
    let hz = text.parse::<f64>().ok().filter(|hz| (0.001..=MOST_HZ).contains(hz));
    hz.map(|hz| Hz(Some(hz))).ok_or_else(|| "expected a number per second, at most 10, or off".to_owned())
}

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds such as 2 or 0.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "expected a number of seconds such as 2 or 0.5".to_owned())
}
