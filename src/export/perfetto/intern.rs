//! Texts that are written once and referred to by number.

use rustc_hash::FxHashMap;

use super::super::protobuf::Message;

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
    categories: FxHashMap<Box<str>, i64>,
    events: FxHashMap<Box<str>, i64>,
    keys: FxHashMap<Box<str>, i64>,
    texts: FxHashMap<Box<str>, i64>,
    new: Message,
}

impl Interned {
    /// The number of a text, from 1 in each kind.
    pub(super) fn number(&mut self, kind: Kind, text: &str) -> i64 {
        let numbers = match kind {
            Kind::Category => &mut self.categories,
            Kind::Event => &mut self.events,
            Kind::Key => &mut self.keys,
            Kind::Text => &mut self.texts,
        };
        if let Some(number) = numbers.get(text) {
            return *number;
        }
        let number = numbers.len() as i64 + 1;
        numbers.insert(text.into(), number);
        let mut entry = Message::default();
        entry.number(1, number);
        entry.part(2, text.as_bytes());
        self.new.part(kind as u32, entry.bytes());
        number
    }

    /// What is new since it was last asked for: an InternedData.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.new).into_bytes()).filter(|new| !new.is_empty())
    }
}
