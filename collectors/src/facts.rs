//! What a segment says about its process: who it is, how it was started, which hooks it has.

use gputrace_abi::event::detail;
use gputrace_abi::layout::{COUNTER_BLOCKS, HOOKS_MAX, HookInfo, View, hook_flag, info, malloc_mode, route};
use gputrace_abi::patches::why;
use gputrace_abi::sync::Ordering;
use gputrace_abi::{Class, brake};

use crate::accounting::MOST;
use crate::manifest;
use crate::names::{self, NameKind};
use crate::redact::Redact;
use crate::segment::Segment;

mod notes;

pub(crate) use notes::{driver_note, not_in_full, notes};

/// Variables that name a rank, the first one set wins.
const RANKS: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
/// The same for the rank on the host.
const LOCAL_RANKS: [&str; 4] = ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// The same for how many ranks there are.
const WORLD_SIZES: [&str; 4] = ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];

/// A process, as it describes itself at its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) parent_pid: i32,
    pub(crate) forked: bool,
    pub(crate) exe: String,
    pub(crate) command: String,
    /// The first word after the program's name that is no option.
    pub(crate) first_word: String,
    /// What tells the program from others ([`brake::key`]), of bytes that need not be UTF-8.
    pub(crate) program: u64,
    pub(crate) rank: Option<i32>,
    pub(crate) local_rank: Option<i32>,
    pub(crate) world_size: Option<i32>,
    /// CUDA_VISIBLE_DEVICES; none when it is not set, which is not the same as empty.
    pub(crate) visible_devices: Option<String>,
    pub(crate) malloc_mode: String,
    /// Mean distance of samples in bytes; 0 where every call is recorded.
    pub(crate) sample_bytes: f64,
}

impl Facts {
    pub(crate) fn read(segment: &Segment, redact: &Redact) -> Facts {
        let header = segment.view().header();
        let sample_bytes = header.sample_bytes.load(Ordering::Relaxed);
        let mode = header.malloc_mode.load(Ordering::Relaxed);
        let mut facts = Facts {
            parent_pid: header.parent_pid.load(Ordering::Relaxed) as i32,
            forked: header.forked.load(Ordering::Relaxed) != 0,
            malloc_mode: match mode {
                malloc_mode::OFF => "off".to_owned(),
                malloc_mode::FULL => "full".to_owned(),
                _ => format!("sample:{sample_bytes}"),
            },
            sample_bytes: if mode == malloc_mode::SAMPLE { sample_bytes as f64 } else { 0.0 },
            ..Facts::default()
        };
        let mut variables: Vec<(String, String)> = Vec::new();
        let (mut exe, mut command) = (Vec::new(), Vec::new());
        for (tag, bytes) in segment.texts() {
            match tag {
                info::EXE => exe = bytes,
                info::COMMAND => command = bytes,
                info::VARIABLE => {
                    let text = String::from_utf8_lossy(&bytes);
                    variables.extend(text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())));
                }
                _ => {}
            }
        }
        facts.exe = String::from_utf8_lossy(&exe).into_owned();
        facts.command = redact.command_line(&command);
        let first = brake::first_word(&command);
        facts.first_word = String::from_utf8_lossy(first).into_owned();
        facts.program = brake::key(&exe, first, env!("CARGO_PKG_VERSION").as_bytes());
        let value = |name: &str| variables.iter().find(|(n, _)| n == name).map(|(_, v): &(String, String)| v.clone());
        let find =
            |names: [&str; 4]| names.into_iter().find_map(|name| value(name)?.parse::<i32>().ok().filter(|n| *n >= 0));
        facts.rank = find(RANKS);
        facts.local_rank = find(LOCAL_RANKS);
        // A batch script has the number of tasks of its job without being one.
        facts.world_size = facts.rank.and_then(|_| find(WORLD_SIZES));
        facts.visible_devices = value("CUDA_VISIBLE_DEVICES");
        facts
    }
}

/// A word as a POSIX shell needs it.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A row of the hook table, with what the collector needs at each event.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    pub(crate) name: String,
    pub(crate) class: Class,
    pub(crate) detail: u8,
    pub(crate) api_id: i64,
    /// A copy between two devices.
    pub(crate) peer: bool,
    /// What it does to streams, events and graphs, where its class does not say it.
    pub(crate) role: Role,
    /// A message to an object of Metal.
    pub(crate) metal: bool,
    /// Calls recorded.
    pub(crate) calls: u64,
    /// Its calls are counted and leave no events.
    pub(crate) counted: bool,
    /// The name was handed to the table of names.
    pub(crate) announced: bool,
}

/// What a function does to streams, events and graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing, or its class says it.
    Other,
    /// Makes a stream; its flags are in the last word.
    CreatesStream,
    /// Records an event in a stream.
    RecordsEvent,
    /// Makes a stream wait for an event, which is the first word.
    WaitsForEvent,
    /// Changes an executable graph, which is the first word.
    UpdatesGraph,
    /// Ends one.
    EndsGraph,
    /// Makes a Metal command buffer, which is the third word, or else a queue signal an event, which is the first.
    SignalsEvent,
    /// Makes a queue of Metal, of which so many command buffers may be uncompleted as the last word says. Its label is in the third.
    MakesQueue,
    /// A command buffer of Metal 4's, the first word, holds nothing from then on.
    BeginsBuffer,
    /// Gives an object of Metal, the first word, the label in the third.
    Labels(Labelled),
}

/// What has a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Labelled {
    Queue,
    CommandBuffer,
    Encoder,
    Memory,
}

impl Labelled {
    /// By the kind of object that a hook's name begins with.
    fn of(kind: &str) -> Labelled {
        match kind {
            "[MTLCommandQueue" => Labelled::Queue,
            "[MTLCommandBuffer" | "[MTL4CommandBuffer" => Labelled::CommandBuffer,
            kind if kind.ends_with("Encoder") => Labelled::Encoder,
            _ => Labelled::Memory,
        }
    }
}

impl Role {
    fn of(name: &str) -> Role {
        match name {
            "cuStreamCreate" | "cuStreamCreateWithPriority" | "cuGreenCtxStreamCreate" => Role::CreatesStream,
            name if name.starts_with("cuEventRecord") => Role::RecordsEvent,
            name if name.starts_with("cuStreamWaitEvent") => Role::WaitsForEvent,
            "cuGraphExecDestroy" => Role::EndsGraph,
            "cuGraphNodeSetEnabled" => Role::UpdatesGraph,
            name if name.starts_with("cuGraphExecUpdate") => Role::UpdatesGraph,
            name if name.starts_with("cuGraphExec") && name.contains("NodeSet") => Role::UpdatesGraph,
            name if name.starts_with("[MTL") => match name.split_once(' ').unwrap_or_default() {
                (_, selector) if selector.starts_with("newCommandQueue") => Role::MakesQueue,
                (_, selector) if selector.starts_with("newMTL4CommandQueue") => Role::MakesQueue,
                (_, selector) if selector.starts_with("encodeSignalEvent:") => Role::SignalsEvent,
                (_, selector) if selector.starts_with("signalEvent:") => Role::SignalsEvent,
                (_, selector) if selector.starts_with("beginCommandBufferWithAllocator:") => Role::BeginsBuffer,
                (kind, "setLabel:]") => Role::Labels(Labelled::of(kind)),
                _ => Role::Other,
            },
            _ => Role::Other,
        }
    }
}

/// The hook table. A row of a class that this version does not know is taken as `Api`.
pub(crate) fn hooks(view: &View) -> Vec<Hook> {
    let count = view.header().hook_count.load(Ordering::Relaxed) as usize;
    let rows: Vec<HookInfo> = (0..count.min(HOOKS_MAX)).filter_map(|n| view.hook(n)).map(|row| row.read()).collect();
    let mut names: Vec<String> = rows.iter().map(|row| row.name().to_owned()).collect();
    // Of those that are longer than a row.
    let more = (count..HOOKS_MAX).filter_map(|n| view.hook(n)).map(|row| row.read());
    for part in more.take_while(|row| row.flags & hook_flag::MORE != 0) {
        names.get_mut(part.routes as usize).into_iter().for_each(|name| name.push_str(part.name()));
    }
    let hook = |(row, name): (&HookInfo, String)| Hook {
        class: Class::from_u8(row.class).unwrap_or(Class::Api),
        detail: row.detail,
        api_id: names::id(NameKind::Api, &name),
        peer: name.contains("Peer"),
        role: Role::of(&name),
        metal: name.starts_with("[MTL"),
        calls: 0,
        counted: row.flags & hook_flag::COUNTED != 0,
        announced: false,
        name,
    };
    rows.iter().zip(names).map(hook).collect()
}

/// Whether the hooks are those of macOS; `known` as [`hooks`] says, or none where no event was read yet.
pub(crate) fn is_of_metal(view: &View, known: &[Hook]) -> bool {
    let count = view.header().hook_count.load(Ordering::Relaxed) as usize;
    let mut rows = (0..count.min(HOOKS_MAX)).filter_map(|n| view.hook(n)).map(|row| row.read());
    known.iter().any(|hook| hook.metal) || known.is_empty() && rows.any(|row| row.name().starts_with("[MTL"))
}

/// Number of a hook's class. From the table itself: a process whose first call never returns has no event, for which
/// [`hooks`] would have been read.
pub(crate) fn class_of(view: &View, hook: u64) -> Option<usize> {
    let count = u64::from(view.header().hook_count.load(Ordering::Relaxed));
    let row = view.hook(usize::try_from(hook).ok().filter(|_| hook < count)?)?;
    Some(Class::from_u8(row.read().class).unwrap_or(Class::Api) as usize)
}

/// Calls that were counted only, by hook. A hostile process may have written any number.
pub(crate) fn counted(view: &View) -> Vec<u64> {
    let used = view.header().counter_blocks.load(Ordering::Relaxed);
    let mut counts = vec![0u64; if used == 0 { 0 } else { HOOKS_MAX }];
    for block in (0..used.min(COUNTER_BLOCKS as u32)).filter_map(|block| view.counters(block)) {
        for (count, counter) in counts.iter_mut().zip(block) {
            *count = (*count + counter.load(Ordering::Relaxed).min(MOST)).min(MOST);
        }
    }
    counts
}

impl Hook {
    /// A transfer that is queued in stream order.
    pub(crate) fn is_async(&self) -> bool {
        matches!(self.detail, detail::COPY_ASYNC | detail::SET_ASYNC)
    }

    /// A set.
    pub(crate) fn is_set(&self) -> bool {
        matches!(self.detail, detail::SET | detail::SET_ASYNC)
    }
}

/// By which ways the program reached hooks, separated by commas; none when it looked none up.
pub(crate) fn routes(view: &View) -> Option<String> {
    let count = view.header().hook_count.load(Ordering::Relaxed) as usize;
    let all = (0..count.min(HOOKS_MAX)).filter_map(|n| view.hook(n)).fold(0, |all, row| all | row.read().routes);
    let names: Vec<&str> = route::ALL.iter().filter(|(bit, _)| all & bit != 0).map(|(_, name)| *name).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// The hooks that the program reached; `counted` as [`counted`] says.
pub(crate) fn coverage(view: &View, known: &[Hook], counted: &[u64]) -> Vec<manifest::Hook> {
    let count = view.header().hook_count.load(Ordering::Relaxed) as usize;
    let routes = |n: usize| view.hook(n).map_or(0, |row| row.read().routes);
    let read;
    let hooks = match known {
        [] if counted.is_empty() && (0..count.min(HOOKS_MAX)).all(|n| routes(n) == 0) => return Vec::new(),
        [] => {
            read = hooks(view);
            &read
        }
        known => known,
    };
    let mut reached = Vec::new();
    for (n, hook) in hooks.iter().enumerate() {
        let only_counted = counted.get(n).copied().unwrap_or(0);
        let calls = hook.calls + only_counted;
        let patched = view.hook(n).is_some_and(|row| row.read().inline == why::PATCHED);
        // A call needs no look-up when the program is linked to the function; the shim does not see that it is. Nor
        // does it see, where the function itself is patched, by which way a call came to it.
        let routes = match (routes(n), calls) {
            (0, 0) => continue,
            (0, _) if patched => route::INLINE,
            (0, _) => route::EXPORT,
            (known, _) if patched => known | route::INLINE,
            (known, _) => known,
        };
        let routes = route::ALL.iter().filter(|(bit, _)| routes & bit != 0).map(|(_, name)| (*name).to_owned());
        reached.push(manifest::Hook {
            name: hook.name.clone(),
            class: hook.class.name().to_owned(),
            routes: routes.collect(),
            calls,
            counted: hook.counted,
            left_out: if hook.counted { 0 } else { only_counted },
        });
    }
    reached
}

/// What came of inline patching, where the driver was patched.
pub(crate) fn inline(view: &View) -> Option<manifest::Inline> {
    let count = view.header().hook_count.load(Ordering::Relaxed) as usize;
    let mut inline = manifest::Inline::default();
    for row in (0..count.min(HOOKS_MAX)).filter_map(|n| view.hook(n)).map(|row| row.read()) {
        match row.inline {
            0 => {}
            why::PATCHED => inline.patched += 1,
            left => {
                let known = why::ALL.iter().find(|(reason, _)| *reason == left).map(|(_, text)| *text);
                let why = known.unwrap_or("for a reason that this version does not know").to_owned();
                inline.left.push(manifest::Left { function: row.name().to_owned(), why });
            }
        }
    }
    (inline != manifest::Inline::default()).then_some(inline)
}
