//! All names and all stacks of a trace, as texts, for who writes everything down: any number of them, in bounded memory.

use std::io;
use std::rc::Rc;

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::names::{full_name, printable};
use super::stacks::frame_text;
use super::{Filter, Frame, NO_STACK, Trace, Want};
use crate::spilled::Spilled;

/// Texts by id.
pub(crate) type Texts = Spilled<Rc<str>>;

/// Functions whose names as shown are kept, not to be made again for each stack that they are in.
const SHOWN: usize = 10_000;

impl Trace {
    /// Every name, as `shown` makes it of the one that was recorded; of two with one id the first.
    pub(crate) fn every_name(&self, shown: impl Fn(&str) -> String) -> io::Result<Texts> {
        let (names, mut done) = (Texts::default(), Ok(()));
        let want = [Want { table: TableId::Names, columns: &["name_id", "name"] }];
        self.scan(&want, &Filter::default(), &mut |rows| {
            let texts = rows.texts("name");
            for (row, id) in rows.i64("name_id").iter().enumerate() {
                if done.is_ok() {
                    done = names.get_or_insert(*id, || shown(texts.get(row)).into()).map(drop);
                }
            }
        });
        done.map(|()| names)
    }

    /// Every stack as one text, innermost first: `step /u/train.py:44 < main /u/train.py:90 < start (libc.so.6)`.
    pub(crate) fn every_stack(&self) -> io::Result<Stacks> {
        self.stacks_as(" < ", |frame| {
            frame_text(&frame.function, if frame.file.is_empty() { frame.module } else { frame.file }, frame.line)
        })
        .map(Stacks)
    }

    /// The frames of every stack.
    pub(crate) fn every_frame(&self) -> io::Result<StackFrames> {
        self.stacks_as(FRAME, |frame| frame.packed()).map(StackFrames)
    }

    /// Every stack as the texts of its frames with something between them.
    fn stacks_as(&self, between: &'static str, text: impl Fn(&Told<'_>) -> String) -> io::Result<Texts> {
        let mut found =
            Found { stacks: Texts::default(), between, id: NO_STACK, frames: Vec::new(), shown: Default::default() };
        let mut done = Ok(());
        let columns = &["stack_id", "depth", "language", "function", "file", "line", "module", "offset"];
        self.scan(&[Want { table: TableId::Stacks, columns }], &Filter::default(), &mut |rows| {
            let (id, depth) = (rows.i64_or("stack_id", NO_STACK), rows.i32_or("depth", 0));
            let (language, function, file) = (rows.texts("language"), rows.texts("function"), rows.texts("file"));
            let (line, module, offset) = (rows.i32_or("line", 0), rows.texts("module"), rows.i64_or("offset", -1));
            for row in 0..rows.len {
                if done.is_ok() && id[row] != found.id {
                    done = found.end(id[row]);
                }
                let python = language.get(row) == "python";
                let told = Told {
                    python,
                    function: found.shown(python, function.get(row)),
                    file: file.get(row),
                    line: Some(line[row]).filter(|line| *line > 0),
                    module: module.get(row),
                    address: Some(offset[row]).filter(|at| *at >= 0 && function.get(row).is_empty()),
                };
                found.frames.push((depth[row], text(&told)));
            }
        });
        done.and_then(|()| found.end(NO_STACK))?;
        Ok(found.stacks)
    }
}

/// The texts of stacks.
#[derive(Default)]
pub(crate) struct Stacks(Texts);

impl Stacks {
    /// That of a stack, if it is known.
    pub(crate) fn whole(&self, stack_id: i64) -> io::Result<Option<Rc<str>>> {
        if stack_id == NO_STACK { Ok(None) } else { self.0.get(stack_id) }
    }
}

/// The frames of stacks.
pub(crate) struct StackFrames(Texts);

impl StackFrames {
    /// Those of a stack, innermost first; none where it is not known.
    pub(crate) fn of(&self, stack_id: i64) -> io::Result<Vec<Frame>> {
        let packed = if stack_id == NO_STACK { None } else { self.0.get(stack_id)? };
        Ok(packed.iter().flat_map(|text| text.split(FRAME)).map(unpacked).collect())
    }
}

/// Between two frames, and between the parts of one. Where a text has them, as only a made-up one does, they are left out.
const FRAME: &str = "\u{1e}";
const PART: char = '\u{1f}';

/// What a table says of a frame.
struct Told<'a> {
    python: bool,
    /// As it is shown.
    function: Rc<str>,
    file: &'a str,
    line: Option<i32>,
    module: &'a str,
    address: Option<i64>,
}

impl Told<'_> {
    fn packed(&self) -> String {
        let number = |number: Option<i64>| number.map_or(String::new(), |number| number.to_string());
        let python = if self.python { "python" } else { "" };
        let (line, address) = (number(self.line.map(i64::from)), number(self.address));
        let parts: [&str; 6] = [python, &self.function, self.file, &line, self.module, &address];
        parts.map(|part| part.replace([PART, '\u{1e}'], "")).join(&PART.to_string())
    }
}

fn unpacked(text: &str) -> Frame {
    let mut parts = text.split(PART);
    let mut next = || parts.next().unwrap_or_default();
    Frame {
        python: next() == "python",
        function: next().to_owned(),
        file: next().to_owned(),
        line: next().parse().ok(),
        module: next().to_owned(),
        address: next().parse().ok(),
    }
}

/// Stacks as far as they were read. The frames of each stand together; of a stack that is told several times the first counts.
struct Found {
    stacks: Texts,
    between: &'static str,
    /// The stack that is being read, and its frames.
    id: i64,
    frames: Vec<(i32, String)>,
    /// Of functions that are not Python's, and that are.
    shown: [FxHashMap<Box<str>, Rc<str>>; 2],
}

impl Found {
    /// The stack is read, and another one follows.
    fn end(&mut self, next: i64) -> io::Result<()> {
        let mut frames = std::mem::take(&mut self.frames);
        frames.sort_by_key(|(depth, _)| *depth);
        frames.dedup_by_key(|(depth, _)| *depth);
        let id = std::mem::replace(&mut self.id, next);
        if frames.is_empty() || id == NO_STACK {
            return Ok(());
        }
        let texts = || frames.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(self.between).into();
        self.stacks.get_or_insert(id, texts).map(drop)
    }

    /// A function as it is shown.
    fn shown(&mut self, python: bool, function: &str) -> Rc<str> {
        let known = &mut self.shown[usize::from(python)];
        if let Some(shown) = known.get(function) {
            return Rc::clone(shown);
        }
        let shown: Rc<str> = if python { printable(function) } else { full_name(function) }.into();
        if known.len() >= SHOWN {
            known.clear();
        }
        known.insert(function.into(), Rc::clone(&shown));
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::TestTrace;

    #[test]
    fn a_stack_is_one_text_of_all_its_frames_however_often_and_in_which_order_they_are_told() {
        let mut made = TestTrace::new();
        let mut row = |stack_id: i64, depth: i32, language: &str, function: &str, file: Option<&str>| {
            let row = serde_json::json!({
                "stack_id": stack_id, "depth": depth, "language": language, "function": function, "file": file,
                "line": file.map(|_| 7), "module": if file.is_none() { Some("/home/u/libm.so") } else { None },
            });
            made.row(TableId::Stacks, row);
        };
        for id in [1, 2, 1] {
            row(id, 1, "native", "_ZN5Model4growEv", None);
            row(id, 0, "python", "load", Some("/home/u/data.py"));
            row(id, 2, "native", "", None);
        }
        let trace = made.open();
        let stacks = trace.every_stack().unwrap();
        let text = "load /home/u/data.py:7 < Model::grow (libm.so) < ? (libm.so)";
        assert_eq!([1, 2].map(|id| stacks.whole(id).unwrap().unwrap().to_string()), [text, text]);
        assert_eq!([3, NO_STACK].map(|id| stacks.whole(id).unwrap()), [None, None]);
        let frames = trace.every_frame().unwrap();
        let kept: Vec<Frame> = trace.sites(&[1].into_iter().collect()).frames(1).collect();
        assert_eq!([1, 2, 3].map(|id| frames.of(id).unwrap()), [kept.clone(), kept, Vec::new()]);
    }
}
