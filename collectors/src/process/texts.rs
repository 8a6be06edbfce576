//! What the texts in the rings say: names, symbols that no hook covers, copies of NCCL.

use gputrace_abi::event::text_kind;

use super::Process;
use super::thread::{Stage, Thread};
use crate::clock::Clocks;
use crate::names::{self, NameKind, Written};
use crate::tables::Tables;

impl Process {
    /// Takes in the texts that this pass read.
    pub(super) fn take_texts(&mut self, clocks: &Clocks, tables: &mut Tables, written: &mut Written) {
        for text in std::mem::take(&mut self.intake.texts) {
            match text.kind {
                text_kind::GPU_WORK | text_kind::GPU_TIME | text_kind::GPU_ACTIVITY => {
                    self.gpu.take(&text, clocks, self.clock, tables);
                    continue;
                }
                text_kind::GPU_SAMPLES | text_kind::GPU_SAMPLING => {
                    self.gpu.samples.take(&text, clocks, self.clock);
                    continue;
                }
                _ => {}
            }
            let name = text.text();
            let mut write = |kind: NameKind| {
                let id = names::id(kind, &name);
                if written.insert(id) {
                    tables.name(id, kind.name(), &name);
                }
                id
            };
            match text.kind {
                text_kind::FUNCTION => {
                    write(NameKind::Kernel);
                }
                text_kind::LABEL | text_kind::KERNEL_NAME => {
                    let id = write(NameKind::Kernel);
                    written.key(gputrace_abi::text::key(text.kind, text.bytes()), id);
                }
                text_kind::RANGE | text_kind::DOMAIN => {
                    let kind = if text.kind == text_kind::RANGE { NameKind::Range } else { NameKind::Domain };
                    let id = write(kind);
                    written.key(gputrace_abi::text::key(text.kind, text.bytes()), id);
                }
                text_kind::CATEGORY => {
                    let id = write(NameKind::Category);
                    self.ranges.name_category(text.key, text.number, id);
                }
                text_kind::UNCOVERED => {
                    write(NameKind::Symbol);
                    self.fetched.take(&text);
                }
                text_kind::EXPORT_TABLE | text_kind::PAST => self.fetched.take(&text),
                text_kind::THREAD => {
                    // It may have ended since, and another one have its number.
                    let named = |t: &&mut Thread| t.tid as u64 == text.key && t.stage != Stage::Left;
                    if let Some(thread) = self.threads.iter_mut().filter(named).max_by_key(|t| t.is_live()) {
                        thread.name = Some(name.to_string());
                    }
                }
                text_kind::DEVICE => {
                    self.devices.add(&text);
                    self.gpu.limits = self.devices.limits();
                }
                text_kind::NCCL => self.communicators.add_copy(&text),
                _ => {}
            }
        }
    }

    /// The names of hooks must be written again.
    pub(crate) fn announce_again(&mut self) {
        self.intake.hooks.iter_mut().for_each(|h| h.announced = false);
        self.intake.stacks.announce_again();
    }
}
