//! The line of an instruction, out of a code object's line table: three forms, by Python's version.
//!
//! The tables come from another process: whatever bytes they are, the answer is a line or none.

/// The line on which the bytecode at `offset` bytes stands; none where the table says so, or ends before.
pub(super) fn line(minor: u8, table: &[u8], first_line: u32, offset: u64) -> Option<u32> {
    let line = match minor {
        ..=9 => increments(table, first_line, offset),
        10 => ranges(table, first_line, offset),
        _ => locations(table, first_line, offset),
    }?;
    u32::try_from(line).ok().filter(|line| *line > 0)
}

/// To 3.9 (`co_lnotab`): pairs of bytes of bytecode and lines to the next place where a line begins.
fn increments(table: &[u8], first_line: u32, offset: u64) -> Option<i64> {
    let (mut at, mut line) = (0u64, i64::from(first_line));
    for [bytes, lines] in table.as_chunks::<2>().0 {
        at += u64::from(*bytes);
        if at > offset {
            break;
        }
        line += i64::from(*lines as i8);
    }
    Some(line)
}

/// 3.10: pairs of the length of a range and its distance in lines from the one before; -128 stands for no line.
fn ranges(table: &[u8], first_line: u32, offset: u64) -> Option<i64> {
    const NO_LINE: i8 = -128;
    let (mut end, mut line) = (0u64, i64::from(first_line));
    for [bytes, lines] in table.as_chunks::<2>().0 {
        end += u64::from(*bytes);
        let lines = *lines as i8;
        if lines != NO_LINE {
            line += i64::from(lines);
        }
        if end > offset {
            return (lines != NO_LINE).then_some(line);
        }
    }
    None
}

/// From 3.11: entries whose first byte alone has the highest bit; it holds a form and the number of instructions.
fn locations(table: &[u8], first_line: u32, offset: u64) -> Option<i64> {
    const LONG: u8 = 14;
    const NO_COLUMNS: u8 = 13;
    const NO_LOCATION: u8 = 15;
    let (mut end, mut line, mut at) = (0u64, i64::from(first_line), 0usize);
    while let Some(&head) = table.get(at) {
        let rest = table.get(at + 1..).unwrap_or(&[]);
        let form = head >> 3 & 15;
        line += match form {
            NO_COLUMNS | LONG => signed(rest),
            10..=12 => i64::from(form) - 10,
            _ => 0,
        };
        end += 2 * (u64::from(head & 7) + 1);
        if end > offset {
            return (form != NO_LOCATION).then_some(line);
        }
        at += 1 + rest.iter().position(|byte| byte & 0x80 != 0).unwrap_or(rest.len());
    }
    None
}

/// A number in pieces of six bits, lowest first, the sign in the lowest of all.
fn signed(bytes: &[u8]) -> i64 {
    let mut value = 0u32;
    for (n, byte) in bytes.iter().enumerate().take(6) {
        value |= u32::from(byte & 63).unbounded_shl(6 * n as u32);
        if byte & 64 == 0 {
            break;
        }
    }
    let amount = i64::from(value >> 1);
    if value & 1 == 1 { -amount } else { amount }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_each_form_are_those_that_python_itself_says() {
        // def f(x):                     # line 1
        //     a = 1
        //
        //     for i in range(x):        # 4
        //         a += i
        //     return a
        let old = [0, 1, 4, 2, 12, 1, 12, 1];
        assert_eq!([0, 3, 4, 15, 16, 27, 28].map(|o| line(9, &old, 1, o)), [2, 2, 4, 4, 5, 5, 6].map(Some));
        let ten = [4, 1, 12, 2, 8, 1, 2, 0xff, 4, 2, 2, 0x80];
        assert_eq!(
            [0, 4, 16, 24, 26, 30].map(|o| line(10, &ten, 1, o)),
            [Some(2), Some(4), Some(5), Some(4), Some(6), None]
        );
        // One instruction without a line of its own, one line on, no columns and two lines on, long and three back.
        let new = [0x80, 0, 0x80 | 11 << 3 | 1, 0, 0, 0x80 | 13 << 3, 4, 0x80 | 14 << 3, 7, 0, 1, 1, 0x80 | 15 << 3];
        assert_eq!(
            [0, 2, 5, 6, 8, 10].map(|o| line(11, &new, 7, o)),
            [Some(7), Some(8), Some(8), Some(10), Some(7), None]
        );
    }

    #[test]
    fn any_bytes_are_a_table() {
        let noise: Vec<u8> = (0..4000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for minor in [8, 10, 14] {
            for start in 0..64 {
                for offset in [0, 2, 500, u64::MAX] {
                    let _ = line(minor, &noise[start..], u32::MAX, offset);
                }
            }
            assert_eq!(line(minor, &[], 5, 0), if minor == 8 { Some(5) } else { None });
        }
    }
}
