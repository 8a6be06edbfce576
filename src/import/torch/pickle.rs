//! Plain data out of a pickle: lists, tuples, dicts, texts, numbers. Nothing in it is run.
//!
//! A pickle is a program for a small stack machine. What makes plain data is done here; an operation that looks something
//! up in Python's modules or calls it is refused, whatever it is. Values stand in one list and name each other by their
//! place in it, so that what was shared stays shared: a kilobyte may stand for values without end, or for lists that lie
//! deeper in each other than calls can, and neither costs more than the file's size. (The libraries for this copy what is
//! shared, and go down by calls.)

use std::borrow::Cow;

use rustc_hash::FxHashMap;

/// The place of a value.
pub(super) type Ref = u32;

/// A value.
#[derive(Debug)]
pub(super) enum Value<'a> {
    /// None, or a number that is not whole or does not fit.
    Nothing,
    Int(i64),
    Text(&'a [u8]),
    /// A list, tuple or set.
    List(Vec<Ref>),
    Dict(Vec<(Ref, Ref)>),
}

/// What is wrong with a file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PickleError {
    #[error("is a pickle that is cut off or damaged, at byte {0}")]
    Damaged(usize),
    #[error(
        "is a pickle that asks Python to look up or call something, at byte {0}: that is not done, only plain data is read"
    )]
    Code(usize),
}

/// A pickle's values.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    values: Vec<Value<'a>>,
    /// What was pickled.
    pub(super) root: Ref,
}

impl<'a> Pickle<'a> {
    /// Reads a pickle of any protocol.
    pub(super) fn read(data: &'a [u8]) -> Result<Pickle<'a>, PickleError> {
        let mut machine = Machine { data, ..Machine::default() };
        let root = machine.run()?;
        Ok(Pickle { values: machine.values, root })
    }

    /// The value at a place.
    pub(super) fn value(&self, at: Ref) -> &Value<'a> {
        self.values.get(at as usize).unwrap_or(&Value::Nothing)
    }

    /// What a dict has under a key; the last one counts.
    pub(super) fn get(&self, dict: Ref, key: &str) -> Option<Ref> {
        let Value::Dict(pairs) = self.value(dict) else { return None };
        let named = |at: Ref| matches!(self.value(at), Value::Text(text) if *text == key.as_bytes());
        pairs.iter().rev().find(|(name, _)| named(*name)).map(|(_, value)| *value)
    }

    /// The members of a list; none where it is no list.
    pub(super) fn list(&self, at: Option<Ref>) -> &[Ref] {
        if let Some(Value::List(members)) = at.map(|at| self.value(at)) { members } else { &[] }
    }

    /// A whole number under a key.
    pub(super) fn int(&self, dict: Ref, key: &str) -> Option<i64> {
        if let Value::Int(value) = self.value(self.get(dict, key)?) { Some(*value) } else { None }
    }

    /// A text under a key.
    pub(super) fn text(&self, dict: Ref, key: &str) -> Option<Cow<'a, str>> {
        if let Value::Text(text) = self.value(self.get(dict, key)?) {
            Some(String::from_utf8_lossy(text))
        } else {
            None
        }
    }
}

#[derive(Default)]
struct Machine<'a> {
    data: &'a [u8],
    at: usize,
    values: Vec<Value<'a>>,
    stack: Vec<Ref>,
    /// How high the stack was at each mark.
    marks: Vec<usize>,
    memo: FxHashMap<u64, Ref>,
}

impl<'a> Machine<'a> {
    fn run(&mut self) -> Result<Ref, PickleError> {
        loop {
            let begin = self.at;
            if let Some(root) = self.step().map_err(|found| found.unwrap_or(PickleError::Damaged(begin)))? {
                return Ok(root);
            }
        }
    }

    /// Does an operation; the value at the end of the program. `Err(None)`: the file is damaged here.
    fn step(&mut self) -> Result<Option<Ref>, Option<PickleError>> {
        let begin = self.at;
        match self.take(1)?[0] {
            b'.' => return self.stack.pop().ok_or(None).map(Some),
            // The version, and how long what follows is.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.stack.pop().ok_or(None)?),
            b'1' => drop(self.above_mark()?),
            b'2' => {
                let top = *self.stack.last().ok_or(None)?;
                self.stack.push(top);
            }
            b'p' => self.memoize(|machine| machine.number_line().map(|key| key as u64))?,
            b'q' => self.memoize(|machine| machine.length(1))?,
            b'r' => self.memoize(|machine| machine.length(4))?,
            0x94 => self.memoize(|machine| Ok(machine.memo.len() as u64))?,
            b'g' => self.recall(|machine| machine.number_line().map(|key| key as u64))?,
            b'h' => self.recall(|machine| machine.length(1))?,
            b'j' => self.recall(|machine| machine.length(4))?,
            b'N' => self.push(Value::Nothing),
            0x88 => self.push(Value::Int(1)),
            0x89 => self.push(Value::Int(0)),
            b'I' | b'L' => {
                let value = self.number_line()?;
                self.push(Value::Int(value));
            }
            b'F' => {
                self.line()?;
                self.push(Value::Nothing);
            }
            b'G' => {
                self.take(8)?;
                self.push(Value::Nothing);
            }
            b'J' => {
                let value = self.length(4)? as u32 as i32;
                self.push(Value::Int(i64::from(value)));
            }
            b'K' => self.unsigned(1)?,
            b'M' => self.unsigned(2)?,
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            b'U' | b'C' | 0x8c => self.bytes(1)?,
            b'T' | b'B' | b'X' => self.bytes(4)?,
            0x8d | 0x8e | 0x96 => self.bytes(8)?,
            b'S' | b'V' => {
                let line = self.line()?;
                let quoted = line.len() > 1 && line[0] == line[line.len() - 1] && matches!(line[0], b'\'' | b'"');
                self.push(Value::Text(if quoted { &line[1..line.len() - 1] } else { line }));
            }
            b']' | b')' | 0x8f => self.push(Value::List(Vec::new())),
            b'l' | b't' | 0x91 => {
                let members = self.above_mark()?;
                self.push(Value::List(members));
            }
            count @ 0x85..=0x87 => {
                let from = self.stack.len().checked_sub(usize::from(count - 0x84)).ok_or(None)?;
                let members = self.stack.split_off(from);
                self.push(Value::List(members));
            }
            b'a' => {
                let member = self.stack.pop().ok_or(None)?;
                self.list()?.push(member);
            }
            b'e' | 0x90 => {
                let members = self.above_mark()?;
                self.list()?.extend(members);
            }
            b'}' => self.push(Value::Dict(Vec::new())),
            b'd' => {
                let members = self.above_mark()?;
                self.push(Value::Dict(Vec::new()));
                self.set(&members)?;
            }
            b's' => {
                let from = self.stack.len().checked_sub(2).ok_or(None)?;
                let members = self.stack.split_off(from);
                self.set(&members)?;
            }
            b'u' => {
                let members = self.above_mark()?;
                self.set(&members)?;
            }
            // Names of modules, calls, states of objects, objects elsewhere, extensions.
            b'c' | b'R' | b'b' | b'i' | b'o' | b'P' | b'Q' | 0x81..=0x84 | 0x92 | 0x93 => {
                return Err(Some(PickleError::Code(begin)));
            }
            _ => return Err(None),
        }
        Ok(None)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Option<PickleError>> {
        let end = self.at.checked_add(count).ok_or(None)?;
        let bytes = self.data.get(self.at..end).ok_or(None)?;
        self.at = end;
        Ok(bytes)
    }

    fn line(&mut self) -> Result<&'a [u8], Option<PickleError>> {
        let rest = self.data.get(self.at..).ok_or(None)?;
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or(None)?;
        self.at += length + 1;
        Ok(&rest[..length])
    }

    fn number_line(&mut self) -> Result<i64, Option<PickleError>> {
        let text = std::str::from_utf8(self.line()?).map_err(|_| None)?;
        text.trim().trim_end_matches('L').parse().map_err(|_| None)
    }

    /// An unsigned number of so many bytes.
    fn length(&mut self, bytes: usize) -> Result<u64, Option<PickleError>> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn unsigned(&mut self, bytes: usize) -> Result<(), Option<PickleError>> {
        let value = self.length(bytes)?;
        self.push(Value::Int(value as i64));
        Ok(())
    }

    fn sized(&mut self, bytes: usize) -> Result<&'a [u8], Option<PickleError>> {
        let length = self.length(bytes)?;
        self.take(usize::try_from(length).map_err(|_| None)?)
    }

    fn bytes(&mut self, length: usize) -> Result<(), Option<PickleError>> {
        let text = self.sized(length)?;
        self.push(Value::Text(text));
        Ok(())
    }

    /// A signed number of any length, the lowest byte first.
    fn long(&mut self, length: usize) -> Result<(), Option<PickleError>> {
        let bytes = self.sized(length)?;
        let sign = if bytes.last().is_some_and(|top| *top >= 0x80) { -1 } else { 0 };
        let fits = bytes.len() <= 8 || bytes.len() == 9 && bytes[8] == 0 && bytes[7] < 0x80;
        let value = bytes.iter().take(8).rev().fold(sign, |value: i64, byte| value << 8 | i64::from(*byte));
        self.push(if fits { Value::Int(value) } else { Value::Nothing });
        Ok(())
    }

    fn push(&mut self, value: Value<'a>) {
        self.stack.push(self.values.len() as Ref);
        self.values.push(value);
    }

    fn above_mark(&mut self) -> Result<Vec<Ref>, Option<PickleError>> {
        let from = self.marks.pop().filter(|mark| *mark <= self.stack.len()).ok_or(None)?;
        Ok(self.stack.split_off(from))
    }

    fn list(&mut self) -> Result<&mut Vec<Ref>, Option<PickleError>> {
        let at = *self.stack.last().ok_or(None)?;
        match self.values.get_mut(at as usize) {
            Some(Value::List(members)) => Ok(members),
            _ => Err(None),
        }
    }

    fn set(&mut self, members: &[Ref]) -> Result<(), Option<PickleError>> {
        let at = *self.stack.last().ok_or(None)?;
        let Some(Value::Dict(pairs)) = self.values.get_mut(at as usize) else { return Err(None) };
        let (new, rest) = members.as_chunks::<2>();
        pairs.extend(new.iter().map(|[key, value]| (*key, *value)));
        if rest.is_empty() { Ok(()) } else { Err(None) }
    }

    fn memoize(
        &mut self,
        key: impl Fn(&mut Self) -> Result<u64, Option<PickleError>>,
    ) -> Result<(), Option<PickleError>> {
        let key = key(self)?;
        let top = *self.stack.last().ok_or(None)?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(
        &mut self,
        key: impl Fn(&mut Self) -> Result<u64, Option<PickleError>>,
    ) -> Result<(), Option<PickleError>> {
        let key = key(self)?;
        let known = *self.memo.get(&key).ok_or(None)?;
        self.stack.push(known);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_data_of_each_protocol_is_read() {
        // {"a": [1, -2, 300, 70000, 2 ** 40], "b": (None, True, 0.5), "c": "x"} as pickle.dumps writes it.
        let four: &[u8] = b"\x80\x04\x95\x3a\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffM\x2c\x01\
            Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01e\x8c\x01b\x94N\x88G?\xe0\x00\x00\x00\x00\x00\x00\x87\x94\x8c\x01c\x94\
            \x8c\x01x\x94u.";
        let two: &[u8] = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM\x2c\x01Jp\x11\x01\x00\
            \x8a\x06\x00\x00\x00\x00\x00\x01eX\x01\x00\x00\x00bq\x03N\x88G?\xe0\x00\x00\x00\x00\x00\x00\x87q\x04\
            X\x01\x00\x00\x00cq\x05X\x01\x00\x00\x00xq\x06u.";
        let zero: &[u8] =
            b"(dp0\nVa\np1\n(lp2\nI1\naI-2\naI300\naI70000\naL1099511627776L\nasVb\np3\n(NI01\nF0.5\ntp4\nsVc\n\
            p5\nVx\np6\ns.";
        for data in [four, two, zero] {
            let pickle = Pickle::read(data).unwrap();
            let ints = |at: Option<Ref>| {
                pickle
                    .list(at)
                    .iter()
                    .map(|at| if let Value::Int(v) = pickle.value(*at) { *v } else { 99 })
                    .collect::<Vec<_>>()
            };
            assert_eq!(ints(pickle.get(pickle.root, "a")), [1, -2, 300, 70_000, 1 << 40]);
            assert_eq!(ints(pickle.get(pickle.root, "b")), [99, 1, 99]);
            assert_eq!(pickle.text(pickle.root, "c").as_deref(), Some("x"));
            assert_eq!(pickle.int(pickle.root, "d"), None);
        }
    }

    #[test]
    fn what_would_run_code_is_refused() {
        let calls: [&[u8]; 4] = [
            b"cos\nsystem\n(S'true'\ntR.",
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
            b"\x80\x02(S'true'\nios\nsystem\n.",
            b"\x80\x04P1\n.",
        ];
        for data in calls {
            assert!(matches!(Pickle::read(data), Err(PickleError::Code(_))), "{data:?}");
        }
    }

    #[test]
    fn damage_is_named_and_ends_the_reading() {
        let whole: &[u8] = b"\x80\x04}\x94(\x8c\x01a\x94]\x94(K\x01Nee\x8c\x01b\x94\x8a\x02\x00\x01u.";
        for end in 0..whole.len() {
            assert!(Pickle::read(&whole[..end]).is_err(), "{end}");
        }
        let wrong: [&[u8]; 7] = [b".", b"a.", b"Nh\x05.", b"1.", b"(N}u.", b"]s.", b"\xff."];
        for data in wrong {
            assert!(matches!(Pickle::read(data), Err(PickleError::Damaged(_))), "{data:?}");
        }
    }

    #[test]
    fn what_is_shared_or_deep_costs_no_more_than_its_bytes() {
        // Each list holds the one before ten times: 10^40 values, were they copied.
        let mut shared = b"]\x94".to_vec();
        for level in 0..40u8 {
            shared.push(b'(');
            shared.extend([b'h', level].repeat(10));
            shared.extend(b"l\x94");
        }
        shared.push(b'.');
        assert_eq!(Pickle::read(&shared).unwrap().values.len(), 41);
        let mut deep = b"]".repeat(1_000_000);
        deep.extend(b"a".repeat(999_999));
        deep.push(b'.');
        assert_eq!(Pickle::read(&deep).unwrap().values.len(), 1_000_000);
    }
}
