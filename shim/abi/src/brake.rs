//! What tells programs apart that died while they were traced, and the sign in a session's folder that one of them is not to be traced.
//!
//! A program is an executable file with the first word of its command line that is no option: of an interpreter that is the script, and
//! one script is not another. A newer version of gputrace has its own chance.

use crate::text::{FNV, fnv};

/// A file `<session>/braked-<key as 16 hexadecimal digits>` says that the program with this key is started untraced.
pub const SIGN: &str = "braked-";

/// The first word after the program's name that is no option; `arguments` are each ended by a zero byte.
pub fn first_word(arguments: &[u8]) -> &[u8] {
    let mut words = arguments.split(|byte| *byte == 0).skip(1);
    words.find(|word| !word.is_empty() && !word.starts_with(b"-")).unwrap_or(&[])
}

/// A program's number.
pub fn key(exe: &[u8], first: &[u8], version: &[u8]) -> u64 {
    [exe, b"\0", first, b"\0", version].into_iter().fold(FNV, fnv)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreters_script_tells_programs_apart() {
        assert_eq!(first_word(b"python3\0-u\0train.py\0--fast\0"), b"train.py");
        assert_eq!(first_word(b"./serve\0"), b"");
        assert_eq!(first_word(b""), b"");
        let of = |first: &[u8]| key(b"/usr/bin/python3", first, b"1");
        assert_ne!(of(b"one.py"), of(b"two.py"));
        assert_ne!(of(b"one.py"), key(b"/usr/bin/python3", b"one.py", b"2"));
    }
}
