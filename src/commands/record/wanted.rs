//! What the options of `record` ask for: of the collector, and of processes, which are told by their environment.

use std::path::{Path, PathBuf};

use gputrace_collectors::Config;
use gputrace_collectors::counters::Asked;

use crate::cli::{
    BUDGET, GPU_WINDOW_EVERY, GpuActivity, GpuTime, HookRoute, Malloc, OnFull, OsWaits, RecordArgs, Switch,
};

/// With this file an administrator switches tracing off for a machine. The shim looks for it as well.
pub(crate) const DISABLE_FILE: &str = "/etc/gputrace/disable";

/// What is asked of the collector.
pub(in crate::commands) fn configure(config: &mut Config, args: &RecordArgs) {
    config.max_size = args.limits.max_size;
    (config.max_age, config.keep_detail) = (args.limits.max_age, args.limits.keep_detail);
    config.detail = args.detail.wanted();
    config.capture = args.capture.schedule();
    config.awaited = args.capture.awaited();
    config.host_memory = args.malloc.asked(args.stacks);
    config.debuginfod = args.debuginfod;
    config.counters = args.counters.0.map(|hz| Asked { hz, cpu: args.cpu_counters == Switch::On });
    config.disable_file = Some(PathBuf::from(DISABLE_FILE));
    config.redact = args.redact.clone();
    config.rollup = args.rollup.0;
    config.hang_after = Some(args.hang_after).filter(|after| !after.is_zero());
    env!("CARGO_PKG_VERSION").clone_into(&mut config.tool_version);
}

/// What processes are told. `session`: stands for the job where nothing else does.
pub(in crate::commands) fn variables(args: &RecordArgs, session: &Path) -> Vec<(&'static str, String)> {
    // Whoever wants each block wants no holes among them: a free that is missing is a leak.
    let usual = if args.malloc.malloc == Malloc::Full { OnFull::Block } else { OnFull::Drop };
    let on_full = match args.on_full.unwrap_or(usual) {
        OnFull::Drop => "drop",
        OnFull::Block => "block",
    };
    let stacks = match args.stacks {
        Switch::On => args.stacks_over.to_string(),
        Switch::Off => "off".to_owned(),
    };
    let launch_stacks = match args.launch_stacks {
        0 => "off".to_owned(),
        n => n.to_string(),
    };
    let os = match args.os {
        OsWaits::Cuda => "cuda",
        OsWaits::All => "all",
        OsWaits::Off => "off",
    };
    let hook = match args.hook {
        HookRoute::Auto => "auto",
        HookRoute::Symbols => "symbols",
        HookRoute::Inline => "inline",
    };
    let gpu_time = match args.gpu_time {
        GpuTime::Auto => "auto",
        GpuTime::Events => "events",
        GpuTime::Full => "full",
        GpuTime::Windows => "windows",
        GpuTime::Off => "off",
    };
    let activity = |kind: &GpuActivity| match kind {
        GpuActivity::Overhead => Some("overhead"),
        GpuActivity::Sync => Some("sync"),
        GpuActivity::UnifiedMemory => Some("unified-memory"),
        GpuActivity::None => None,
    };
    let activities: Vec<&str> = args.gpu_activity.iter().filter_map(activity).collect();
    let mut variables = vec![
        ("GPUTRACE_GPU_ACTIVITY", activities.join(",")),
        ("GPUTRACE_GPU_TIME", gpu_time.to_owned()),
        ("GPUTRACE_BUDGET", ((args.budget.unwrap_or(BUDGET) * 1e4).round() as u32).max(1).to_string()),
        // What nobody gave is the budget of windows alone.
        ("GPUTRACE_SHED", if args.budget.is_some() { "on" } else { "off" }.to_owned()),
        ("GPUTRACE_GPU_PERIOD", args.gpu_window_every.unwrap_or(GPU_WINDOW_EVERY).as_millis().to_string()),
        ("GPUTRACE_JOB", job(|name| std::env::var(name).ok()).unwrap_or_else(|| session.display().to_string())),
        ("GPUTRACE_HOOK", hook.to_owned()),
        ("GPUTRACE_STACKS", stacks),
        ("GPUTRACE_LAUNCH_STACKS", launch_stacks),
        ("GPUTRACE_OS", os.to_owned()),
        ("GPUTRACE_OS_OVER", args.os_over.to_string()),
        ("GPUTRACE_SEGMENT_MEMORY", args.segment_memory.to_string()),
        ("GPUTRACE_ON_FULL", on_full.to_owned()),
    ];
    variables.extend(args.capture.variables());
    variables.extend(args.malloc.variables());
    variables
}

/// What all launchers of a job have in common, where a scheduler or the user said so: their windows open together.
fn job(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    const NAMES: [&str; 7] = [
        "SLURM_JOB_ID",
        "PBS_JOBID",
        "LSB_JOBID",
        "FLUX_JOB_ID",
        "PMIX_NAMESPACE",
        "TORCHELASTIC_RUN_ID",
        "MASTER_ADDR",
    ];
    NAMES.iter().find_map(|name| Some(format!("{name}={}", variable(name).filter(|value| !value.is_empty())?)))
}
