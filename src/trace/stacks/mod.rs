//! Stacks behind ids, and the one line of each that a report names. A frame is kept once, however many stacks have it.

mod held;
mod nearest;
mod site;
pub(super) mod told;
pub(super) mod tree;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::Trace;
use super::names::printable;
use nearest::Nearest;
pub(crate) use site::{Site, shown_file};
use site::{Sources, chosen, site};
use tree::Tree;

/// Stands for a missing `stack_id`: real ids are not negative.
pub(crate) const NO_STACK: i64 = -1;
/// Stands for stacks that are too many to be told apart.
pub(crate) const OTHER_STACKS: i64 = -2;

/// The sites of the stacks that a report needs, and the frames of all.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    sites: Places,
    tree: Tree,
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
    /// Reads the stacks, and finds the sites of those with these ids.
    pub(crate) fn sites(&self, ids: &FxHashSet<i64>) -> Sites {
        if ids.is_empty() {
            return Sites::default();
        }
        // No source is so old.
        let before_ns = if self.without_sources.get().is_some() { i64::MIN } else { self.began_ns() };
        let (mut sources, tree) = (Sources::new(before_ns), self.stacks());
        let (mut sites, mut known) = (Places::default(), FxHashMap::default());
        let mut nearest = Nearest::new(&tree);
        for id in ids {
            if let Some(number) = nearest.site(*id) {
                let new = || sites.all.insert_full(site(&tree.frame(number), &mut sources)).0 as u32;
                sites.by_stack.insert(*id, *known.entry(number).or_insert_with(new));
            }
        }
        Sites { sites, tree }
    }
}

/// The site of each stack: many stacks have one line.
#[derive(Debug, Default)]
struct Places {
    by_stack: FxHashMap<i64, u32>,
    all: IndexSet<Site, FxBuildHasher>,
}

impl Places {
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
        chosen(frames.iter().map(|frame| (frame, frame.kind()))).map(|frame| site(frame, &mut self.0))
    }
}

impl Sites {
    /// The site of a stack, if it is known.
    pub(crate) fn get(&self, stack_id: i64) -> Option<&Site> {
        self.sites.get(stack_id)
    }

    /// The frames of a stack, innermost first.
    pub(crate) fn frames(&self, stack_id: i64) -> impl Iterator<Item = Frame> {
        self.tree.frames(stack_id)
    }

    /// All of a stack as one text, innermost first: `step /u/train.py:44 < main /u/train.py:90 < start (libc.so.6)`.
    pub(crate) fn whole(&self, stack_id: i64) -> Option<String> {
        whole(self.frames(stack_id))
    }
}

/// Frames as one text; none where there are none.
pub(super) fn whole(frames: impl IntoIterator<Item = Frame>) -> Option<String> {
    let frames: Vec<String> = frames.into_iter().map(|frame| frame.text()).collect();
    (!frames.is_empty()).then(|| frames.join(" < "))
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
fn place<'a>(file: &'a str, module: &'a str) -> &'a str {
    if file.is_empty() { module } else { file }
}

/// `main /u/train.py:90`, `start (libc.so.6)`: of the function as it is shown, and its [`place`].
fn frame_text(function: &str, place: &str, line: Option<i32>) -> String {
    let function = if function.is_empty() { "?" } else { function };
    match (line, place.rsplit('/').next().unwrap_or_default()) {
        (_, "") => function.to_owned(),
        (Some(line), _) => format!("{function} {}:{line}", printable(place)),
        (None, name) => format!("{function} ({})", printable(name)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::UNIX_EPOCH;

    use crate::trace::testing::TestTrace;

    #[test]
    fn where_sources_are_left_out_lines_have_the_names_of_their_functions() {
        let path = std::env::temp_dir().join(format!("gputrace-lines-{}.py", std::process::id()));
        std::fs::write(&path, "def load():\n    return open(name)\n").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(UNIX_EPOCH).unwrap();
        let mut made = TestTrace::new();
        made.process(1, 100, None, crate::trace::testing::START + 1_000);
        let id = made.stack("load", path.to_str().unwrap(), 2);
        let trace = made.open();
        let line = || trace.sites(&[id].into_iter().collect()).get(id).map(|site| site.short()).unwrap();
        assert!(line().ends_with(".py:2 return open(name)"), "{}", line());
        trace.leave_sources_out();
        assert!(line().ends_with(".py:2 load"), "{}", line());
        std::fs::remove_file(&path).unwrap();
    }
}
