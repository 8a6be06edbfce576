//! What comes out of the rings: events to be held back, and what the numbers in them mean.

use std::collections::HashMap;

use gputrace_abi::Class;
use gputrace_abi::event::{Event, detail, text_kind};
use gputrace_abi::layout::View;
use gputrace_abi::metal::BEHIND;

use super::NOBODY;
use super::graphs::Graphs;
use super::metal::Metal;
use crate::accounting::ByClass;
use crate::bindings::{Change, Contexts, Memory, Names};
use crate::chain::{Item, Text};
use crate::facts::{self, Hook, Role};
use crate::heir::told::Slot;
use crate::names::{self, NameKind};
use crate::stacks::Stacks;

/// What comes out of the rings.
pub(crate) struct Intake {
    pub(super) view: View,
    /// The hook table, read at the first event: most processes have none.
    pub(crate) hooks: Vec<Hook>,
    /// Events of this pass; `commit` holds the place of their thread in the list, `spare` whether they have a stack.
    pub(super) fresh: Vec<Event>,
    pub(crate) names: Names,
    pub(crate) contexts: Contexts,
    pub(crate) memory: Memory,
    pub(super) texts: Vec<Text>,
    pub(crate) graphs: Graphs,
    pub(super) metal: Metal,
    /// Labels whose events come next, by thread: the time of both, and the key.
    labels: HashMap<usize, (u64, u64)>,
    pub(crate) stacks: Stacks,
    /// Communicators that were made; `commit` as in `fresh`.
    pub(super) communicators: Vec<Event>,
    /// Events of hooks that the table does not have.
    pub(super) unknown: u64,
    /// When the latest event began.
    pub(super) latest: u64,
    /// What this pass read that is told once.
    pub(crate) told: Vec<Slot>,
}

/// Handles live in a space of their own, beside addresses.
const HANDLE: u64 = 1 << 63;

/// The key of a block in [`Memory`].
pub(crate) fn key(detail: u8, address: u64) -> u64 {
    if matches!(detail, detail::PHYSICAL | detail::ARRAY) { address ^ HANDLE } else { address }
}

impl Intake {
    pub(super) fn new(view: View, stacks: Stacks) -> Intake {
        Intake {
            view,
            hooks: Vec::new(),
            fresh: Vec::new(),
            names: Names::default(),
            contexts: Contexts::default(),
            memory: Memory::default(),
            texts: Vec::new(),
            graphs: Graphs::default(),
            metal: Metal::default(),
            labels: HashMap::new(),
            stacks,
            communicators: Vec::new(),
            unknown: 0,
            latest: 0,
            told: Vec::new(),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn read_hooks(&mut self) {
        if self.hooks.is_empty() {
            self.hooks = facts::hooks(&self.view);
            self.metal.is_here = self.hooks.iter().any(|hook| hook.metal);
            self.names.end = self.metal.is_here;
        }
    }

    #[inline(always)]
    pub(super) fn take(&mut self, item: Item, recorded: &mut ByClass, thread: usize) {
        match item {
            Item::Event(mut event) => {
                if usize::from(event.hook) >= self.hooks.len() {
                    self.read_hooks();
                }
                let Some(hook) = self.hooks.get_mut(usize::from(event.hook)) else {
                    self.unknown += 1;
                    return;
                };
                hook.calls += 1;
                recorded[hook.class as usize] += 1;
                // Metal's messages are put into their order first, and follow its memory themselves.
                if matches!(hook.class, Class::Alloc | Class::Free) && event.result == 0 && !hook.metal {
                    let address = key(hook.detail, event.payload[0]);
                    let alloc = hook.class == Class::Alloc;
                    let block = alloc.then_some((event.payload[3], hook.detail));
                    let ticks = if alloc { event.end } else { event.start };
                    self.memory.add(Change { ticks, address, block });
                }
                self.latest = self.latest.max(event.start);
                match hook.role {
                    Role::Labels(_) if event.payload[2] == BEHIND => event.payload[2] = self.label_of(&event, thread),
                    Role::UpdatesGraph if event.result == 0 => self.graphs.updated(event.payload[0], event.end),
                    Role::EndsGraph if event.result == 0 => self.graphs.ended(event.payload[0], event.end),
                    _ => {}
                }
                event.commit = thread as u32;
                event.spare = 0; // a mark of ours from here on
                self.fresh.push(event);
            }
            Item::Context(event) => self.contexts.bind(event.context, event.payload[2]),
            Item::Communicator(mut event) => {
                self.read_hooks();
                event.commit = thread as u32;
                event.spare = 0; // a count of ours from here on
                self.communicators.push(event);
            }
            Item::Told(mut slots) => self.told.append(&mut slots),
            Item::GpuTimes(event) => self.metal.take_times(event),
            Item::Learned { key, ticks, start } => self.names.hold_from(key, ticks, start),
            Item::Stack(event) => self.stacks.attach(&event, thread as u32, &mut self.fresh),
            Item::Text(text) => self.take_text(text, thread),
        }
    }

    /// The key of the label that stands right before its event in their ring.
    fn label_of(&mut self, event: &Event, thread: usize) -> u64 {
        self.labels.remove(&thread).filter(|(ticks, _)| *ticks == event.end).map_or(0, |(_, key)| key)
    }

    /// A name must be known before the next event of its thread says that it was learned there.
    fn take_text(&mut self, text: Text, thread: usize) {
        if self.stacks.take_text(&text) {
            return;
        }
        match text.kind {
            text_kind::FUNCTION => {
                self.read_hooks();
                if text.text().is_empty() {
                    // A pipeline of Metal's that ended.
                    return self.names.unbind(text.key, text.ticks);
                }
                let id = names::id(NameKind::Kernel, &text.text());
                self.names.bind(text.key, text.ticks, id);
                self.metal.name(id, &text.text());
            }
            text_kind::LABEL => {
                // Of one in the shared ring the event says the key.
                if text.key == BEHIND && thread != NOBODY {
                    self.labels.insert(thread, (text.ticks, gputrace_abi::text::key(text.kind, text.bytes())));
                }
                self.metal.name(names::id(NameKind::Kernel, &text.text()), &text.text());
            }
            text_kind::METAL_CLASS => self.metal.is_unseen(text.key, &text.text(), text.number),
            text_kind::ALIAS => self.names.alias(text.key, text.ticks, text.number),
            text_kind::GRAPH => return self.graphs.take_text(&text, thread),
            _ => {}
        }
        self.texts.push(text);
    }
}
