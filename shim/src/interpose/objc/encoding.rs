//! Type encodings of methods: whether a method has the signature that a hook was written for.
//!
//! Runtimes write them differently: with offsets or without, `q` or `l` for a long, `B` or `c` for a BOOL, names of structs
//! or a question mark, what a pointer points to or less of it. None of that changes how arguments are passed.

/// The types of an encoding, one byte each; a struct stays open as `{`, its members, `}`.
#[derive(Clone)]
struct Types<'a>(&'a [u8]);

/// Whether both mean the same signature.
pub(super) fn alike(a: &[u8], b: &[u8]) -> bool {
    Types(a).eq(Types(b))
}

impl Iterator for Types<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        loop {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            match first {
                b'0'..=b'9' | b'+' | b'-' | b'r' | b'n' | b'N' | b'o' | b'O' | b'R' | b'V' | b'A' => {}
                b'^' => {
                    self.skip();
                    return Some(b'^');
                }
                b'{' | b'(' => {
                    self.pass_name();
                    return Some(*first);
                }
                b'@' => {
                    self.pass_object();
                    return Some(b'@');
                }
                b'l' => return Some(b'q'),
                b'L' => return Some(b'Q'),
                b'c' => return Some(b'B'),
                other => return Some(*other),
            }
        }
    }
}

impl Types<'_> {
    /// Past the name of a struct, which ends with `=`; one without members has none.
    fn pass_name(&mut self) {
        while let Some((first, rest)) = self.0.split_first() {
            match first {
                b'}' | b')' => return,
                b'=' => {
                    self.0 = rest;
                    return;
                }
                _ => self.0 = rest,
            }
        }
    }

    /// Past what may follow an object: `?` of a block, or the name of its class in quotes.
    fn pass_object(&mut self) {
        match self.0.split_first() {
            Some((b'?', rest)) => self.0 = rest,
            Some((b'"', rest)) => {
                let end = rest.iter().position(|byte| *byte == b'"').map_or(rest.len(), |at| at + 1);
                self.0 = rest.get(end..).unwrap_or_default();
            }
            _ => {}
        }
    }

    /// Past one type.
    fn skip(&mut self) {
        let mut open = 0u32;
        loop {
            match self.next() {
                Some(b'{' | b'(' | b'[') => open += 1,
                Some(b'}' | b')' | b']') => open = open.saturating_sub(1),
                Some(_) => {}
                None => return,
            }
            if open == 0 {
                return;
            }
        }
    }
}
