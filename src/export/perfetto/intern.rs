//! Texts that are written once and referred to by number.

use std::io;

use super::super::protobuf::Message;
use crate::spilled::Numbers;

/// Kinds of interned texts, by their fields in InternedData.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Category = 1,
    Event = 2,
    Key = 3,
    Text = 29,
}

/// All texts so far, and those that are yet to be told.
#[derive(Default)]
pub(super) struct Interned {
    categories: Numbers,
    events: Numbers,
    keys: Numbers,
    texts: Numbers,
    new: Message,
}

impl Interned {
    /// The number of a text, from 1 in each kind.
    pub(super) fn number(&mut self, kind: Kind, text: &str) -> io::Result<i64> {
        let numbers = match kind {
            Kind::Category => &mut self.categories,
            Kind::Event => &mut self.events,
            Kind::Key => &mut self.keys,
            Kind::Text => &mut self.texts,
        };
        let (number, is_new) = numbers.of(text)?;
        if is_new {
            let mut entry = Message::default();
            entry.number(1, number);
            entry.part(2, text.as_bytes());
            self.new.part(kind as u32, entry.bytes());
        }
        Ok(number)
    }

    /// What is new since it was last asked for: an InternedData.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.new).into_bytes()).filter(|new| !new.is_empty())
    }
}
