//! Names of functions as they stood in the source: C++ and Rust, without control characters.

use std::fmt::Write;

/// A function's name, demangled, without control characters.
pub fn full_name(name: &str) -> String {
    printable(&demangled(name))
}

/// A longer name is shown as it is: nobody can read it, and substitutions let a short mangled name stand for gigabytes.
const LONGEST: usize = 16 * 1024;

/// The name as it stood in the source, when it is a mangled one.
fn demangled(name: &str) -> String {
    if name.len() > LONGEST {
        return name.to_owned();
    }
    // Rust's older mangling is a case of C++'s, so Rust's demangler is asked first.
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z") {
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        let mut text = Bounded(String::new());
        if let Ok(symbol) = cpp_demangle::Symbol::new(name)
            && symbol.structured_demangle(&mut text, &options).is_ok()
        {
            return text.0;
        }
    }
    name.to_owned()
}

/// Text that refuses to grow beyond [`LONGEST`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A text that does nothing to a terminal or to the text around it: controls are replaced, and those that turn the direction of
/// writing, with which a name may look like another one, are escaped.
pub fn printable(text: &str) -> String {
    let turns =
        |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            _ if c.is_control() => out.push('\u{fffd}'),
            _ if turns(c) => out.extend(c.escape_unicode()),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_the_direction_of_writing_is_escaped_and_what_controls_a_terminal_replaced() {
        assert_eq!(printable("gemm_\u{202e}oof\u{2066}"), "gemm_\\u{202e}oof\\u{2066}");
        assert_eq!(printable("a\u{1b}[31m \u{5d0}\u{4f60}"), "a\u{fffd}[31m \u{5d0}\u{4f60}", "letters stay");
    }

    #[test]
    fn a_name_that_would_explode_is_shown_as_it_is() {
        // pair<int, int>, then a pair of two of those, and so on: each argument is twice as long as the one before.
        let id = |n: u32| char::from_digit(n, 36).unwrap().to_ascii_uppercase();
        let pairs: String = (1..34).map(|n| format!("S0_IS{0}_S{0}_E", id(n))).collect();
        let bomb = format!("_Z1fI1pIiiE{pairs}Evv");
        assert!(demangled("_Z1fI1pIiiES0_IS1_S1_EEvv").contains("p<p<int, int>, p<int, int> >"));
        let nested = (0..200).fold("i".to_owned(), |inner, _| format!("1tI{inner}E"));
        for name in [bomb, format!("_Z1fI{nested}Evv"), "_Z".repeat(9000)] {
            assert!(full_name(&name).len() <= LONGEST.max(name.len()));
        }
    }
}
