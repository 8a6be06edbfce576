//! What bars are: their name with all that is known of them. Most of a program's bars are like one that was there before.

use rustc_hash::FxHashMap;

use super::super::timeline::{Arg, Slice};

/// Kinds with all that is known; those that come later have their name alone.
const FULL: usize = 16_384;
/// Kinds at all; those that come later share one.
const MOST: usize = 2 * FULL;
/// Bytes of all texts, after which no kind is added.
const MOST_BYTES: usize = 12 << 20;
/// Characters of a text: templates of C++ may have thousands.
const LONGEST: usize = 2_000;
/// What each bar has another one of.
const OWN: [&str; 2] = ["correlation", "address"];
/// What is called so stands for all that found no room.
const OTHERS: &str = "(other names)";

/// The kinds so far.
#[derive(Default)]
pub(super) struct Kinds {
    numbers: FxHashMap<Box<[u8]>, u32>,
    texts: FxHashMap<Box<str>, u32>,
    /// Every text, by number.
    pub(super) list: Vec<Box<str>>,
    bytes: usize,
    /// Name, category, whether it is a moment; then what else is known, name and value in turn.
    pub(super) all: Vec<Vec<u32>>,
    key: Vec<u8>,
    /// Some found no room.
    pub(super) full: bool,
}

impl Kinds {
    /// The kind of a bar.
    pub(super) fn of(&mut self, slice: &Slice<'_>) -> u32 {
        let more = if self.all.len() < FULL && self.bytes < MOST_BYTES { slice.args.as_slice() } else { &[] };
        match self.known(slice, &slice.args).or_else(|| self.known(slice, more)) {
            Some(number) => number,
            None if self.all.len() < MOST && self.bytes < MOST_BYTES => self.add(slice, more),
            None => {
                self.full = true;
                let other = Slice { name: OTHERS, args: Vec::new(), ..*slice };
                self.known(&other, &[]).unwrap_or_else(|| self.add(&other, &[]))
            }
        }
    }

    fn known(&mut self, slice: &Slice<'_>, args: &[(&'static str, Arg<'_>)]) -> Option<u32> {
        self.key.clear();
        let mut text = |text: &str| {
            self.key.extend_from_slice(&(text.len() as u32).to_le_bytes());
            self.key.extend_from_slice(text.as_bytes());
        };
        text(slice.name);
        text(slice.category);
        text(if slice.length_ns.is_none() { "moment" } else { "" });
        for (name, value) in args.iter().filter(|(name, _)| !OWN.contains(name)) {
            text(name);
            match value {
                Arg::Text(value) => text(value),
                Arg::Int(value) => text(&value.to_string()),
            }
        }
        self.numbers.get(self.key.as_slice()).copied()
    }

    /// Adds what [`Kinds::known`] did not know.
    fn add(&mut self, slice: &Slice<'_>, args: &[(&'static str, Arg<'_>)]) -> u32 {
        self.known(slice, args);
        let number = self.all.len() as u32;
        self.bytes += self.key.len();
        self.numbers.insert(self.key.as_slice().into(), number);
        let moment = u32::from(slice.length_ns.is_none());
        let mut kind = vec![self.text(slice.name), self.text(slice.category), moment];
        for (name, value) in args.iter().filter(|(name, _)| !OWN.contains(name)) {
            kind.push(self.text(name));
            kind.push(match value {
                Arg::Text(value) => self.text(value),
                Arg::Int(value) => self.text(&value.to_string()),
            });
        }
        self.all.push(kind);
        number
    }

    fn text(&mut self, text: &str) -> u32 {
        let text = match text.char_indices().nth(LONGEST) {
            Some((at, _)) => &text[..at],
            None => text,
        };
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.list.len() as u32;
        self.bytes += 2 * text.len();
        self.texts.insert(text.into(), number);
        self.list.push(text.into());
        number
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::timeline::{Flow, Track};
    use super::*;

    fn slice<'a>(name: &'a str, bytes: i64) -> Slice<'a> {
        let args = vec![("bytes", Arg::Int(bytes)), ("correlation", Arg::Int(bytes * 3))];
        let track = Track::Thread(1, 1);
        Slice { track, start_ns: 0, length_ns: Some(1), name, category: "api", flow: Flow::None, args }
    }

    #[test]
    fn a_kind_is_kept_once_and_what_finds_no_room_keeps_its_name() {
        let mut kinds = Kinds::default();
        assert_eq!((kinds.of(&slice("a", 1)), kinds.of(&slice("a", 2)), kinds.of(&slice("a", 1))), (0, 1, 0));
        (0..FULL as i64 + 100).for_each(|bytes| assert!(kinds.of(&slice("a", bytes)) as usize <= FULL));
        assert_eq!((kinds.all.len(), kinds.all[FULL].len(), kinds.full), (FULL + 1, 3, false));
        for name in 0..MOST {
            kinds.of(&slice(&format!("n{name}"), 1));
        }
        let last = kinds.of(&slice("one more", 1)) as usize;
        assert_eq!((kinds.all.len(), &*kinds.list[kinds.all[last][0] as usize]), (MOST + 1, OTHERS));
        assert_eq!((kinds.full, kinds.of(&slice("a", 1))), (true, 0));
    }

    #[test]
    fn long_texts_end_somewhere() {
        let mut kinds = Kinds::default();
        let name = "ä".repeat(LONGEST + 5);
        let kind = kinds.of(&slice(&name, 1)) as usize;
        assert_eq!(kinds.list[kinds.all[kind][0] as usize].chars().count(), LONGEST);
    }
}
