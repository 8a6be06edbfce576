//! All names and all stacks of a trace, as texts, for who writes everything down: any number of them, in bounded memory.

use std::io;
use std::rc::Rc;

use gputrace_collectors::schema::TableId;

use super::stacks::told::{Shown, Told};
use super::stacks::{frame_text, place};
use super::{Filter, Frame, NO_STACK, Trace, Want};
use crate::spilled::Spilled;

/// Texts by id.
pub(crate) type Texts = Spilled<Rc<str>>;

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
        let text = |frame: &Told<'_>| frame_text(frame.function, place(frame.file, frame.module), frame.line);
        self.stacks_as(" < ", text).map(Stacks)
    }

    /// The frames of every stack.
    pub(crate) fn every_frame(&self) -> io::Result<StackFrames> {
        self.stacks_as(FRAME, packed).map(StackFrames)
    }

    /// Every stack as the texts of its frames with something between them.
    fn stacks_as(&self, between: &'static str, text: impl Fn(&Told<'_>) -> String) -> io::Result<Texts> {
        let mut found =
            Found { stacks: Texts::default(), between, id: NO_STACK, frames: Vec::new(), shown: Shown::default() };
        let mut done = Ok(());
        self.each_frame(
            |_| true,
            |id, depth, told| {
                if done.is_ok() && id != found.id {
                    done = found.end(id);
                }
                let shown = found.shown.of(told.python, told.function, |text| text.into());
                found.frames.push((depth, text(&Told { function: &shown, ..*told })));
            },
        );
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

/// A frame with its function as it is shown, as one text.
fn packed(frame: &Told<'_>) -> String {
    let number = |number: Option<i64>| number.map_or(String::new(), |number| number.to_string());
    let python = if frame.python { "python" } else { "" };
    let (line, address) = (number(frame.line.map(i64::from)), number(frame.address));
    let parts: [&str; 6] = [python, frame.function, frame.file, &line, frame.module, &address];
    parts.map(|part| part.replace([PART, '\u{1e}'], "")).join(&PART.to_string())
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
    shown: Shown<Rc<str>>,
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
