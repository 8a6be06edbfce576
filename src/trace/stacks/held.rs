//! Frames of many stacks in little memory: each text once, a frame as numbers of texts.
//!
//! A hundred thousand stacks have as many frames of their own, whose paths and functions are mostly those of others: 46 bytes a frame beside
//! its texts, where one with texts of its own takes 250.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use super::Frame;
use super::told::{Shown, Told};

/// A frame, with texts as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    python: bool,
    line: Option<i32>,
    function: u32,
    file: u32,
    module: u32,
    address: Option<i64>,
}

/// Frames by number.
#[derive(Debug, Default)]
pub(super) struct Frames {
    texts: IndexSet<Box<str>, FxBuildHasher>,
    all: IndexSet<Held, FxBuildHasher>,
    /// Numbers of functions' names.
    shown: Shown<u32>,
}

impl Frames {
    /// The number of a frame.
    pub(super) fn number(&mut self, of: &Told<'_>) -> u32 {
        let mut number = |text: &str| match self.texts.get_index_of(text) {
            Some(number) => number as u32,
            None => self.texts.insert_full(text.into()).0 as u32,
        };
        let [file, module] = [of.file, of.module].map(&mut number);
        let function = self.shown.of(of.python, of.function, number);
        // Where it is says which of those without a name.
        let address = of.address.filter(|_| of.function.is_empty());
        let held = Held { python: of.python, line: of.line, function, file, module, address };
        self.all.insert_full(held).0 as u32
    }

    /// A frame with its texts.
    pub(super) fn get(&self, number: u32) -> Frame {
        let Some(held) = self.all.get_index(number as usize) else { return Frame::default() };
        let text = |number: u32| self.texts.get_index(number as usize).map_or(String::new(), |text| text.to_string());
        Frame {
            python: held.python,
            function: text(held.function),
            file: text(held.file),
            line: held.line,
            module: text(held.module),
            address: held.address,
        }
    }

    /// Nothing more comes: what only that needed goes.
    pub(super) fn seal(&mut self) {
        self.shown = Shown::default();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}
