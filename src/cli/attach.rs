//! Options of `attach`.

use std::path::PathBuf;

use clap::Args;

use super::malloc::Malloc;
use super::record::{GpuTime, HookRoute, OsWaits, RecordArgs, Switch};

/// Options of `attach`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace attach PID [-o TRACE] [--duration SECONDS] [OPTIONS]",
    after_help = "Experimental, and for Linux. Recorded are calls of the CUDA driver, from the attach to the detach. Not recorded are malloc, waits for the \
                  operating system, NVTX, NCCL and times of the GPU: how the program calls those was settled when it started. Streams, modules and \
                  contexts that were made before are known as far as the driver names them when it is asked.\n\nCtrl-C, SIGTERM, --duration or the process's \
                  end ends it: the driver's functions get back each byte that was changed, recording is off, the trace is made whole and its summary \
                  printed. The process runs on, and may be attached to again. What stays in it is the shim, called by nobody, and its segment.\n\nExit code: 0 \
                  when it detached and all is written; 125 where the process cannot be attached to, or gputrace failed.\n\nExamples:\n  gputrace attach 4711\n  \
                  gputrace attach 4711 --duration 10 -o /var/tmp/trace\n  gputrace attach $(pgrep -n python) --detail rollup"
)]
#[command(mut_arg("malloc", |arg| arg.default_value("off")))]
#[command(mut_arg("nvtx", |arg| arg.default_value("off")))]
#[command(mut_arg("os", |arg| arg.default_value("off")))]
#[command(mut_arg("segment_memory", |arg| arg.default_value("4M")))]
#[command(mut_arg("duration", |arg| arg
    .help("Detach after so many seconds")
    .long_help("Detach after so many seconds\n\nThe process runs on. Example: --duration 30")))]
#[command(mut_args(|arg| match UNFIT.contains(&arg.get_id().as_str()) {
    true => arg.hide(true),
    false => arg,
}))]
pub(crate) struct AttachArgs {
    /// Number of the process
    #[arg(value_name = "PID")]
    pub(crate) pid: i32,

    /// Folder for what gputrace and the process share, which stays as long as the process. Default: in XDG_RUNTIME_DIR, /dev/shm or /tmp, where
    /// the process sees it too
    ///
    /// For a process in a container: a folder that it sees under the same path, and from where it may load a library. Example: --session
    /// /srv/shared/gputrace
    #[arg(long, value_name = "DIR")]
    pub(crate) session: Option<PathBuf>,

    /// What is recorded, as for record.
    #[command(flatten)]
    pub(crate) record: RecordArgs,
}

/// Options of record that say nothing of a process that runs already.
const UNFIT: [&str; 20] = [
    "capture_every",
    "capture_range",
    "capture_steps",
    "command",
    "cull",
    "delay",
    "gpu_activity",
    "gpu_time",
    "gpu_window_every",
    "grace",
    "hook",
    "malloc",
    "malloc_arenas",
    "malloc_stacks",
    "mmap",
    "nvtx",
    "nvtx_capture",
    "os",
    "os_over",
    "start_paused",
];

impl AttachArgs {
    /// Err: what was asked for that cannot be had of a process that runs.
    #[cfg_attr(target_os = "macos", expect(dead_code, reason = "attach is for Linux"))]
    pub(crate) fn check(&self) -> Result<(), String> {
        let record = &self.record;
        let capture = &record.capture;
        let asked = [
            (record.malloc.malloc != Malloc::Off || record.malloc.mmap, "--malloc and --mmap"),
            (record.os != OsWaits::Off, "--os"),
            (record.nvtx != Switch::Off, "--nvtx"),
            (record.gpu_time != GpuTime::Off, "--gpu-time"),
            (record.hook != HookRoute::Auto, "--hook"),
            (
                capture.start_paused || capture.delay.is_some() || capture.capture_every.is_some(),
                "--start-paused, --delay and --capture-every",
            ),
            (
                capture.capture_range.is_some() || capture.capture_steps.is_some() || capture.nvtx_capture.is_some(),
                "--capture-range, --capture-steps and --nvtx-capture",
            ),
        ];
        if let Some((_, which)) = asked.iter().find(|(asked, _)| *asked) {
            return Err(format!("{which}: not of a process that runs already; start it with gputrace for that"));
        }
        if !record.command.is_empty() {
            return Err("attach starts no command; gputrace -- COMMAND does".to_owned());
        }
        record.check()
    }
}
