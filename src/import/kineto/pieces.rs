//! A large JSON text in pieces: each event of `traceEvents`, and each other member of the object around it.
//!
//! Only one piece is in memory. Where a piece ends is all that is found out here, so that one event that is no JSON (older
//! profilers wrote `nan`, and names as they came) costs that event, and a file that was cut off costs its last one. An event
//! that is JSON ends where its reader says so: nearly all are read where they lie, and no byte of them is looked at twice.

use std::io::{self, BufRead};

/// Longest piece that is kept; a longer one is no event.
const LONGEST: usize = 16 << 20;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// An event, in the buffer.
    Event,
    /// A member of the object, by its key; its value is in the buffer.
    Member(String),
    /// The end, as it should be.
    End,
    /// The end, and something after it that is no part of the text.
    More,
    /// The file ends where something must follow.
    CutOff,
    /// This is no such text.
    Foreign,
}

/// Where in the text we are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    Object,
    /// In the array of events, and whether an object is around it.
    Events(bool),
    Over,
}

/// The pieces of a text.
pub(crate) struct Pieces<R> {
    input: R,
    place: Place,
    /// The last piece.
    pub(crate) buffer: Vec<u8>,
}

impl<R: BufRead> Pieces<R> {
    /// Of this text.
    pub(crate) fn new(input: R) -> Pieces<R> {
        Pieces { input, place: Place::Start, buffer: Vec::new() }
    }

    /// The next piece. Events of which all is in memory are offered to `whole` first, with what comes after them: it says
    /// how many bytes the event had that it took, and such events are no pieces.
    pub(crate) fn next(&mut self, mut whole: impl FnMut(&[u8]) -> Option<usize>) -> io::Result<Piece> {
        loop {
            let Some(first) = self.peek()? else {
                let start = self.place == Place::Start;
                return Ok(match self.place {
                    _ if start => Piece::Foreign,
                    Place::Over => Piece::End,
                    _ => Piece::CutOff,
                });
            };
            match (self.place, first) {
                (Place::Start, b'{') => self.enter(Place::Object),
                (Place::Start, b'[') => self.enter(Place::Events(false)),
                (Place::Start, _) => return Ok(Piece::Foreign),
                (Place::Object, b'}') | (Place::Events(false), b']') => self.enter(Place::Over),
                (Place::Events(true), b']') => self.enter(Place::Object),
                (Place::Object, b'"') => {
                    if !self.value()? {
                        return Ok(Piece::CutOff);
                    }
                    let key = serde_json::from_slice(&self.buffer).unwrap_or_default();
                    match self.peek()? {
                        Some(b'[') if key == "traceEvents" => self.enter(Place::Events(true)),
                        Some(_) if self.value()? => return Ok(Piece::Member(key)),
                        _ => return Ok(Piece::CutOff),
                    }
                }
                // A bracket that closes nothing: the text is damaged here, and what it belonged to is an event that is none.
                (Place::Events(_), b'}') => {
                    self.buffer.clear();
                    self.buffer.push(first);
                    self.input.consume(1);
                    return Ok(Piece::Event);
                }
                (Place::Events(_), b'{') if let Some(taken) = whole(read(&mut self.input)?) => {
                    self.input.consume(taken)
                }
                (Place::Events(_), _) => return Ok(if self.value()? { Piece::Event } else { Piece::CutOff }),
                (Place::Over, _) => return Ok(Piece::More),
                (Place::Object, _) => return Ok(Piece::Foreign),
            }
        }
    }

    fn enter(&mut self, place: Place) {
        self.input.consume(1);
        self.place = place;
    }

    /// The next byte that means something.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let chunk = read(&mut self.input)?;
            if chunk.is_empty() {
                return Ok(None);
            }
            // A byte order mark counts as space.
            let skip = |b: &u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | 0xef | 0xbb | 0xbf);
            match chunk.iter().position(|b| !skip(b)) {
                Some(at) => {
                    let byte = chunk[at];
                    self.input.consume(at);
                    return Ok(Some(byte));
                }
                None => {
                    let all = chunk.len();
                    self.input.consume(all);
                }
            }
        }
    }

    /// Reads a value into the buffer. False: the text ends inside it.
    fn value(&mut self) -> io::Result<bool> {
        self.buffer.clear();
        let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
        loop {
            let chunk = read(&mut self.input)?;
            if chunk.is_empty() {
                return Ok(false);
            }
            let (mut end, mut done) = (chunk.len(), false);
            for (at, byte) in chunk.iter().enumerate() {
                if in_text {
                    match byte {
                        _ if escaped => escaped = false,
                        b'\\' => escaped = true,
                        b'"' => in_text = false,
                        _ => continue,
                    }
                    // A text of its own is over with its quote.
                    if !in_text && depth == 0 {
                        (end, done) = (at + 1, true);
                        break;
                    }
                    continue;
                }
                match byte {
                    b'"' => in_text = true,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' if depth == 0 => (end, done) = (at, true),
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            (end, done) = (at + 1, true);
                        }
                    }
                    b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => (end, done) = (at, true),
                    _ => {}
                }
                if done {
                    break;
                }
            }
            let room = LONGEST.saturating_sub(self.buffer.len());
            self.buffer.extend_from_slice(&chunk[..end.min(room)]);
            self.input.consume(end);
            if done {
                return Ok(true);
            }
        }
    }
}

/// What the reader has; a signal is no error.
fn read<R: BufRead>(input: &mut R) -> io::Result<&[u8]> {
    loop {
        match input.fill_buf() {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    input.fill_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<(Piece, String)> {
        // A small buffer, so that each piece spans several.
        let mut pieces = Pieces::new(io::BufReader::with_capacity(3, text.as_bytes()));
        let mut all = Vec::new();
        loop {
            let piece = pieces.next(|_| None).unwrap();
            let over = !matches!(piece, Piece::Event | Piece::Member(_));
            all.push((piece, if over { String::new() } else { String::from_utf8(pieces.buffer.clone()).unwrap() }));
            if over {
                return all;
            }
        }
    }

    fn event(text: &str) -> (Piece, String) {
        (Piece::Event, text.to_owned())
    }

    fn over(piece: Piece) -> (Piece, String) {
        (piece, String::new())
    }

    #[test]
    fn events_and_members_come_one_by_one() {
        let text = r#" {"a": 1, "b": {"c": "}]"}, "traceEvents": [{"x":"\"}"}, {"y":[1,{}]}], "z": "w"} "#;
        let member = |key: &str, value: &str| (Piece::Member(key.to_owned()), value.to_owned());
        let wanted = vec![
            member("a", "1"),
            member("b", r#"{"c": "}]"}"#),
            event(r#"{"x":"\"}"}"#),
            event(r#"{"y":[1,{}]}"#),
            member("z", r#""w""#),
            over(Piece::End),
        ];
        assert_eq!(pieces(text), wanted);
        assert_eq!(pieces("[{}\n,{}]"), [event("{}"), event("{}"), over(Piece::End)]);
    }

    #[test]
    fn events_that_are_in_memory_are_offered_where_they_lie() {
        let text = r#"{"traceEvents": [{"a": 1} , {"b": 2}, 3, {"c": 3}], "z": {"d": 4}}"#;
        let mut pieces = Pieces::new(text.as_bytes());
        let mut seen = Vec::new();
        let mut next = || {
            pieces.next(|text| {
                seen.push(text[2]);
                (text[2] != b'b').then_some(br#"{"a": 1}"#.len())
            })
        };
        let all: Vec<Piece> = (0..4).map(|_| next().unwrap()).collect();
        assert_eq!(all, [Piece::Event, Piece::Event, Piece::Member("z".to_owned()), Piece::End]);
        assert_eq!(seen, b"abc", "what is not taken comes as a piece, and members are not offered");
    }

    #[test]
    fn a_damaged_text_comes_to_its_end() {
        let text = r#"{"traceEvents": [{"a": 1}, {"b"]}: 2}}, }, {"c": 3}]}"#;
        let all = pieces(text);
        assert_eq!(all.last(), Some(&over(Piece::End)), "{all:?}");
        assert!(all.contains(&event("}")) && all.contains(&event(r#"{"c": 3}"#)), "{all:?}");
        // Whatever is cut out of it or put into it.
        for at in 0..text.len() {
            for put in ["", "}", "]", "{", "[", "\"", "\"]}", ","] {
                let damaged = format!("{}{put}{}", &text[..at], &text[at + 1..]);
                assert!(pieces(&damaged).len() < 2 * text.len(), "{damaged}");
            }
        }
    }

    #[test]
    fn what_was_cut_off_is_told_from_what_is_foreign() {
        assert_eq!(pieces("[{},"), [event("{}"), over(Piece::CutOff)]);
        assert_eq!(pieces(r#"{"traceEvents": [{}, {"a": "#), [event("{}"), over(Piece::CutOff)]);
        assert_eq!(pieces(r#"{"traceEvents": [{}]"#), [event("{}"), over(Piece::CutOff)]);
        for foreign in ["", "  ", "hello", "{hello}"] {
            assert_eq!(pieces(foreign), [over(Piece::Foreign)], "{foreign}");
        }
    }
}
