//! What stands out in a summary at a terminal: its first line, the verdict, the heads of findings. The words stay what they are:
//! nothing is told by a colour alone, and without styles the text is the same, byte by byte.

use anstyle::{AnsiColor, Style};

const STRONG: Style = Style::new().bold();
/// Nothing is to be done.
const FINE: Style = AnsiColor::Green.on_default().bold();
/// What costs time.
const COSTLY: Style = AnsiColor::Yellow.on_default().bold();

/// A heading.
pub(super) fn heading(text: &str) -> String {
    styled(text, STRONG)
}

/// A summary, in the lines that it has, with its styles.
pub(crate) fn dressed(text: &str) -> String {
    let (mut in_head, mut in_findings) = (false, false);
    let mut out = String::with_capacity(text.len() + 100);
    for line in text.lines() {
        in_head = line.starts_with("gputrace: ") || in_head && line.starts_with("  ");
        let begins = line == "finding" || line == "findings" || line.starts_with("findings (");
        // Their lines are numbered, or stand further right.
        in_findings = begins || in_findings && line.starts_with(|c: char| c == ' ' || c.is_ascii_digit());
        if in_head || begins {
            out += &styled(line, STRONG);
        } else if let Some((word, rest)) = verdict(line) {
            let style = match word {
                "HEALTHY" => FINE,
                "UNKNOWN" => STRONG,
                _ => COSTLY,
            };
            out += &format!("{}:{rest}", styled(word, style));
        } else if in_findings && line.starts_with(|c: char| c.is_ascii_digit()) {
            let (title, rest) = line.split_at(line.find("  ").unwrap_or(line.len()));
            out += &format!("{}{rest}", styled(title, STRONG));
        } else {
            out += line;
        }
        out.push('\n');
    }
    out
}

/// The word of a verdict and what comes behind its colon.
fn verdict(line: &str) -> Option<(&str, &str)> {
    let (word, rest) = line.split_once(':')?;
    let is_word = word.len() > 3 && word.chars().all(|c| c.is_ascii_uppercase() || c == ' ') && !word.starts_with(' ');
    (is_word && rest.starts_with(' ')).then_some((word, rest))
}

fn styled(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "gputrace: train.py  exit 0  1.18 s\n  200 steps  GPU 0\nHOST BOUND: GPU idle 57 %\n  of a step\nstep  p50 5.61 ms\n\
                        findings (all together: at most 3.37 ms)\n1 wait every step  <= 0.95 ms\n   try wait less often\n\
                        checked, fine: launches\n2 of these  are none\n";

    #[test]
    fn heads_stand_out_and_the_words_stay() {
        let text = dressed(TEXT);
        let bold = |text: &str| format!("\u{1b}[1m{text}\u{1b}[0m\n");
        assert!(text.starts_with(&bold("gputrace: train.py  exit 0  1.18 s")), "{text}");
        assert!(
            text.contains(&bold("  200 steps  GPU 0")) && text.contains("\n  of a step\nstep  p50 5.61 ms\n"),
            "{text}"
        );
        assert!(text.contains("\u{1b}[1m\u{1b}[33mHOST BOUND\u{1b}[0m: GPU idle 57 %\n"), "{text}");
        assert!(text.contains("\u{1b}[1m1 wait every step\u{1b}[0m  <= 0.95 ms\n   try"), "{text}");
        assert!(text.ends_with("\nchecked, fine: launches\n2 of these  are none\n"), "{text}");
        let plain = ["\u{1b}[1m", "\u{1b}[33m", "\u{1b}[0m"].iter().fold(text, |text, style| text.replace(style, ""));
        assert_eq!(plain, TEXT);
    }

    #[test]
    fn a_verdict_that_is_good_or_not_known_looks_like_one() {
        assert_eq!(dressed("HEALTHY: fine"), "\u{1b}[1m\u{1b}[32mHEALTHY\u{1b}[0m: fine\n");
        assert_eq!(dressed("UNKNOWN: why"), "\u{1b}[1mUNKNOWN\u{1b}[0m: why\n");
        assert_eq!(dressed(" GPU: no word"), " GPU: no word\n");
        assert_eq!(dressed("NCCL:x"), "NCCL:x\n");
    }
}
