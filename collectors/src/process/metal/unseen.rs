//! Classes of Metal's whose objects the shim does not see in full: by name, with how many objects there were, and what is missing.

use std::collections::BTreeMap;

use gputrace_abi::layout::note;
use gputrace_abi::metal::unseen;

/// Classes that are told apart; a hostile process could name them without end.
const MOST: usize = 64;

/// By reason and text, how many objects were told of.
#[derive(Debug, Default)]
pub(super) struct Unseen(BTreeMap<(u64, String), u64>);

impl Unseen {
    pub(super) fn take(&mut self, why: u64, text: &str, objects: u64) {
        let key = (why, text.to_owned());
        if self.0.len() < MOST || self.0.contains_key(&key) {
            let known = self.0.entry(key).or_default();
            *known = objects.max(*known);
        }
    }

    /// Whether all objects are seen in full.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bits of [`note`] whose sentences the named ones say better.
    pub(super) fn bits(&self) -> u32 {
        let bit = |why: &u64| match *why {
            unseen::FULL => note::METAL_CLASSES_FULL,
            unseen::LACKS => note::METAL_CLASS_UNKNOWN,
            unseen::SIGNATURE => note::METAL_SIGNATURE,
            _ => 0,
        };
        self.0.keys().fold(0, |bits, (why, _)| bits | bit(why))
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|((why, text), objects)| {
            let (first, second) = text.split_once(' ')?;
            let count = match objects {
                0 => String::new(),
                1 => "1 ".to_owned(),
                more => format!("at least {more} "),
            };
            let missing = missing(first);
            Some(match *why {
                unseen::FULL => {
                    format!("{count}{first} of class {second}, beyond the fourth class of the kind: {missing} missing")
                }
                unseen::LACKS => format!(
                    "{count}{first} of class {second}, which lacks what its kind has (a wrapper, or a newer macOS): {missing} \
                     missing"
                ),
                unseen::SIGNATURE => {
                    format!("[{first} {second}] has another signature than Metal's method of that name: its calls are missing")
                }
                unseen::LATE => format!(
                    "no message returned the {first} of class {second} before one was committed or waited for: what was encoded \
                     before that is missing, and so are commits before a wait"
                ),
                _ => return None,
            })
        })
    }
}

/// What a trace lacks where objects of this kind are not seen.
fn missing(kind: &str) -> &'static str {
    match kind {
        "MTLDevice" => "its queues, buffers and all that comes of them are",
        "MTLCommandQueue" => "its command buffers, and their commits where they are of no known class, are",
        "MTLCommandBuffer" => "their commits, dispatches, copies and times on the GPU are",
        "MTL4CommandQueue" => "its commits, and their times on the GPU, are",
        kind if kind.ends_with("Encoder") => "their dispatches and copies are",
        "MTLBuffer" | "MTLHeap" | "MTLTexture" => "when they ended is",
        _ => "messages to them are",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_named_once_with_the_most_objects_that_were_told_of() {
        let mut seen = Unseen::default();
        for objects in [1, 2, 4] {
            seen.take(unseen::LACKS, "MTLCommandQueue Thin", objects);
        }
        seen.take(unseen::SIGNATURE, "Odd commandBuffer", 0);
        seen.take(99, "of a newer shim", 0);
        let notes: Vec<String> = seen.notes().collect();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("at least 4 MTLCommandQueue of class Thin, which lacks"), "{notes:?}");
        assert!(notes[1].starts_with("[Odd commandBuffer] has another signature"), "{notes:?}");
        assert_eq!(seen.bits(), note::METAL_CLASS_UNKNOWN | note::METAL_SIGNATURE);
    }
}
