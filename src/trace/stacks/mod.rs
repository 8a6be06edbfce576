//! Stacks behind ids, and the one line of each that a report names. A frame is kept once, however many stacks have it.

mod held;
mod site;
pub(super) mod told;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::Trace;
use super::names::printable;
use held::Frames;
pub(crate) use site::Site;
use site::{Sources, site};

/// Stands for a missing `stack_id`: real ids are not negative.
pub(crate) const NO_STACK: i64 = -1;

/// The stacks that a report needs, and their sites.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    sites: Places,
    stacks: FxHashMap<i64, Box<[u32]>>,
    frames: Frames,
}

/// A frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    /// Of Python's code.
    pub(crate) python: bool,
    /// Function, demangled; empty when not known.
    pub(crate) function: String,
    /// Path of the source; empty when not known.
    pub(crate) file: String,
    /// Line in it.
    pub(crate) line: Option<i32>,
    /// Path of the program or library; empty for Python and for code made at run time.
    pub(crate) module: String,
    /// Address in it of a function without a name.
    pub(crate) address: Option<i64>,
}

impl Trace {
    /// Reads the stacks with these ids and no others.
    pub(crate) fn sites(&self, ids: &FxHashSet<i64>) -> Sites {
        let (mut frames, mut found) = (Frames::default(), FxHashMap::<i64, Vec<(i32, u32)>>::default());
        self.each_frame(
            |id| ids.contains(&id),
            |id, depth, told| {
                let stack = found.entry(id).or_default();
                // Of a depth that is told again the first counts.
                if stack.iter().all(|(known, _)| *known != depth) {
                    stack.push((depth, frames.number(told)));
                }
            },
        );
        frames.seal();
        let (mut sources, mut sites) = (Sources::new(self.began_ns()), Places::default());
        let stacks = found.into_iter().map(|(id, mut stack)| {
            stack.sort_unstable();
            let of_stack: Vec<Frame> = stack.iter().map(|(_, number)| frames.get(*number)).collect();
            sites.add(id, site(&of_stack.iter().collect::<Vec<_>>(), &mut sources));
            (id, stack.into_iter().map(|(_, number)| number).collect())
        });
        Sites { stacks: stacks.collect(), sites, frames }
    }
}

/// The site of each stack: many stacks have one line.
#[derive(Debug, Default)]
struct Places {
    by_stack: FxHashMap<i64, u32>,
    all: IndexSet<Site, FxBuildHasher>,
}

impl Places {
    fn add(&mut self, stack_id: i64, site: Option<Site>) {
        if let Some(site) = site {
            self.by_stack.insert(stack_id, self.all.insert_full(site).0 as u32);
        }
    }

    fn get(&self, stack_id: i64) -> Option<&Site> {
        self.all.get_index(*self.by_stack.get(&stack_id)? as usize)
    }
}

/// Names the sites of stacks that somebody else has.
pub(crate) struct SiteFinder(Sources);

impl SiteFinder {
    /// Of a run that began then: lines of files that changed since are not shown.
    pub(crate) fn new(began_ns: i64) -> SiteFinder {
        SiteFinder(Sources::new(began_ns))
    }

    /// The site of a stack, innermost frame first; none where it has no frames.
    pub(crate) fn find(&mut self, frames: &[Frame]) -> Option<Site> {
        site(&frames.iter().collect::<Vec<_>>(), &mut self.0)
    }
}

impl Sites {
    /// The site of a stack, if it is known.
    pub(crate) fn get(&self, stack_id: i64) -> Option<&Site> {
        self.sites.get(stack_id)
    }

    /// The frames of a stack, innermost first.
    pub(crate) fn frames(&self, stack_id: i64) -> impl Iterator<Item = Frame> {
        let numbers = self.stacks.get(&stack_id).map_or(&[][..], |numbers| numbers);
        numbers.iter().map(|number| self.frames.get(*number))
    }

    /// All of a stack as one text, innermost first: `step /u/train.py:44 < main /u/train.py:90 < start (libc.so.6)`.
    pub(crate) fn whole(&self, stack_id: i64) -> Option<String> {
        let frames: Vec<String> = self.frames(stack_id).map(|frame| frame.text()).collect();
        (!frames.is_empty()).then(|| frames.join(" < "))
    }
}

impl Frame {
    /// `train.py:90 main`, `start (libc.so.6)`: as a site is named.
    pub(crate) fn short(&self) -> String {
        let file = printable(self.place());
        Site { file, line: self.line, function: self.name(), text: None }.short()
    }

    /// `main /u/train.py:90`, `start (libc.so.6)`.
    fn text(&self) -> String {
        frame_text(&self.function, self.place(), self.line)
    }

    /// Its source or, where that is not known, the library.
    pub(crate) fn place(&self) -> &str {
        place(&self.file, &self.module)
    }
}

/// The source of a frame or, where that is not known, the library.
pub(super) fn place<'a>(file: &'a str, module: &'a str) -> &'a str {
    if file.is_empty() { module } else { file }
}

/// `main /u/train.py:90`, `start (libc.so.6)`: of the function as it is shown, and its [`place`].
pub(super) fn frame_text(function: &str, place: &str, line: Option<i32>) -> String {
    let function = if function.is_empty() { "?" } else { function };
    match (line, place.rsplit('/').next().unwrap_or_default()) {
        (_, "") => function.to_owned(),
        (Some(line), _) => format!("{function} {}:{line}", printable(place)),
        (None, name) => format!("{function} ({})", printable(name)),
    }
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::schema::TableId;

    use crate::trace::testing::TestTrace;

    #[test]
    fn a_stack_as_a_whole_names_all_its_frames_each_kept_once() {
        let mut trace = TestTrace::new();
        let mut row =
            |stack_id: i64, depth: i32, language: &str, function: &str, file: Option<&str>, module: Option<&str>| {
                let line = file.map(|_| 7);
                let row = serde_json::json!({
                    "stack_id": stack_id, "depth": depth, "language": language, "function": function, "file": file,
                    "line": line, "module": module,
                });
                trace.row(TableId::Stacks, row);
            };
        for id in [1, 2] {
            row(id, 1, "native", "_ZN5Model4growEv", None, Some("/home/u/libm.so"));
            row(id, 0, "python", "load", Some("/home/u/data.py"), None);
            row(id, 2, "native", "", None, None);
        }
        let sites = trace.open().sites(&[1, 2].into_iter().collect());
        assert_eq!(sites.whole(1).as_deref(), Some("load /home/u/data.py:7 < Model::grow (libm.so) < ?"));
        assert_eq!((sites.whole(1), sites.whole(3)), (sites.whole(2), None));
        assert_eq!(sites.frames.len(), 3);
    }
}
