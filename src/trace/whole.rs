//! All names and all stacks of a trace, as texts, for who writes everything down: any number of them, in bounded memory.

use std::io;
use std::rc::Rc;

use gputrace_collectors::schema::TableId;

use super::stacks::told::{Outwards, Shown, ToldStack};
use super::stacks::tree::DEEPEST;
use super::stacks::whole;
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

    /// Every stack.
    pub(crate) fn every_stack(&self) -> io::Result<Stacks> {
        let (stacks, mut shown, mut done) = (Texts::default(), Shown::default(), Ok(()));
        self.each_stack(|told| {
            if done.is_ok() {
                let function: Rc<str> = shown.of(told.frame.python, told.frame.function, |text| text.into());
                done = stacks.get_or_insert(told.id, || packed(told, &function).into()).map(drop);
            }
        });
        done.map(|()| Stacks { stacks, texts: Texts::default() })
    }
}

/// Stacks by id.
#[derive(Default)]
pub(crate) struct Stacks {
    /// Their innermost frames, and who called these.
    stacks: Texts,
    /// All of those that were asked for.
    texts: Texts,
}

impl Stacks {
    /// The frames of a stack, innermost first; none where it is not known.
    pub(crate) fn frames(&self, stack_id: i64) -> io::Result<Vec<Frame>> {
        Ok(self.frames_at(stack_id)?.into_iter().map(|(frame, _)| frame).collect())
    }

    /// The same, with where each is in its library as far as that is known.
    pub(crate) fn frames_at(&self, stack_id: i64) -> io::Result<Vec<(Frame, Option<i64>)>> {
        let (mut frames, mut way) = (Vec::new(), Outwards::from(stack_id));
        while let Some(next) = way.stack().filter(|_| frames.len() < DEEPEST)
            && let Some(text) = self.stacks.get(next)?
        {
            let ([caller, outer], frame, address) = unpacked(&text);
            frames.push((frame, address));
            way.step(caller, outer);
        }
        Ok(frames)
    }

    /// All of a stack as one text, innermost first: `step /u/train.py:44 < main /u/train.py:90 < start (libc.so.6)`.
    pub(crate) fn whole(&self, stack_id: i64) -> io::Result<Option<Rc<str>>> {
        if stack_id == NO_STACK {
            return Ok(None);
        }
        if let Some(known) = self.texts.get(stack_id)? {
            return Ok(Some(known));
        }
        let Some(text) = whole(self.frames(stack_id)?) else { return Ok(None) };
        let text: Rc<str> = text.into();
        self.texts.insert(stack_id, text.clone())?;
        Ok(Some(text))
    }
}

/// Between the parts of a stack's text. Where one has it, as only a made-up one does, it is left out.
const PART: char = '\u{1f}';

/// A stack with its function as it is shown, as one text.
fn packed(told: &ToldStack<'_>, function: &str) -> String {
    let ToldStack { caller, outer, frame, .. } = told;
    let number = |number: Option<i64>| number.map_or(String::new(), |number| number.to_string());
    let (line, address) = (number(frame.line.map(i64::from)), number(frame.address));
    let python = if frame.python { "python" } else { "" };
    let parts: [&str; 8] =
        [&caller.to_string(), &outer.to_string(), python, function, frame.file, &line, frame.module, &address];
    parts.map(|part| part.replace(PART, "")).join(&PART.to_string())
}

/// Who called the frame and who is outside of that, the frame, and where it is.
fn unpacked(text: &str) -> ([i64; 2], Frame, Option<i64>) {
    let mut parts = text.split(PART);
    let mut next = || parts.next().unwrap_or_default();
    let callers = [next(), next()].map(|id| id.parse().unwrap_or(NO_STACK));
    let mut frame = Frame {
        python: next() == "python",
        function: next().to_owned(),
        file: next().to_owned(),
        line: next().parse().ok(),
        module: next().to_owned(),
        address: None,
    };
    let address = next().parse().ok();
    frame.address = address.filter(|_| frame.function.is_empty());
    (callers, frame, address)
}
