//! Names of one table, shortened so that those that differ look different.
//!
//! Templates make names of ten thousand characters that differ in one number of an argument, which is what [`shortened`] leaves
//! out first. Where that makes several names of one, each shows its begin as ever, and then what stands where they differ.

use std::collections::BTreeMap;

use super::names::shortened;
use super::wide::{back, columns_of, front};

/// What is left out.
const CUT: &str = "..";
/// Characters before the place where names differ that are shown with it.
const BEFORE: usize = 3;

/// Each name in at most `width` columns, those that differ so that they look different.
pub(crate) fn shortened_apart<S: AsRef<str>>(names: &[S], width: usize) -> Vec<String> {
    let mut short: BTreeMap<&str, String> =
        names.iter().map(|name| (name.as_ref(), shortened(name.as_ref(), width))).collect();
    for group in alike(&short) {
        tell_apart(&group, width, &mut short);
    }
    // Where there is no room even for that, a number tells them apart.
    for group in alike(&short) {
        for (number, name) in group.iter().enumerate().skip(1) {
            let number = format!("#{}", number + 1);
            let kept = front(&short[name], width.saturating_sub(number.len()));
            let numbered = format!("{kept}{number}");
            short.insert(name, numbered);
        }
    }
    names.iter().map(|name| short[name.as_ref()].clone()).collect()
}

/// Names that look the same, by how they look.
fn alike<'a>(short: &BTreeMap<&'a str, String>) -> Vec<Vec<&'a str>> {
    let mut by_look: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    short.iter().for_each(|(name, look)| by_look.entry(look).or_default().push(name));
    by_look.into_values().filter(|names| names.len() > 1).collect()
}

/// Shows of each what stands from the place on where not all are the same. Those that are still the same there differ further on.
fn tell_apart<'a>(group: &[&'a str], width: usize, short: &mut BTreeMap<&'a str, String>) {
    let differ = common(group);
    let mut by_look: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in group {
        by_look.entry(look(name, differ, width)).or_default().push(name);
    }
    for (look, names) in by_look {
        match names.as_slice() {
            [name] => drop(short.insert(name, look)),
            fewer if fewer.len() < group.len() => tell_apart(fewer, width, short),
            _ => {}
        }
    }
}

/// Characters that all names begin with.
fn common(names: &[&str]) -> usize {
    let Some((first, others)) = names.split_first() else { return 0 };
    let same = |other: &&str| first.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    others.iter().map(same).min().unwrap_or(0)
}

/// A name by whose arguments it has, and by what stands around one of its characters.
fn look(name: &str, at: usize, width: usize) -> String {
    let head = head(name, width.saturating_sub(2 * CUT.len()) / 2);
    let room = width.saturating_sub(columns_of(&head) + CUT.len());
    let rest = name.char_indices().nth(at.saturating_sub(BEFORE)).map_or("", |(from, _)| &name[from..]);
    if columns_of(rest) <= room {
        return format!("{head}{CUT}{rest}");
    }
    format!("{head}{CUT}{}{CUT}", front(rest, room.saturating_sub(CUT.len())))
}

/// What stands before a template's arguments, but for what it returns; its end where that is too long. Of a name without arguments
/// what it looks like.
fn head(name: &str, width: usize) -> String {
    let before = name.split('<').next().unwrap_or_default();
    let before = before.strip_prefix("void ").unwrap_or(before);
    if before.is_empty() || before.len() == name.len() {
        return shortened(name, width);
    }
    if columns_of(before) <= width {
        return before.to_owned();
    }
    format!("{CUT}{}", back(before, width.saturating_sub(CUT.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A template of ten thousand characters, whose argument at a place is this one.
    fn template(name: &str, place: usize, argument: &str) -> String {
        let argument_at =
            |n: usize| if n == place { argument.to_owned() } else { format!("std::integral_constant<int, {n}>") };
        let arguments: Vec<String> = (0..300).map(argument_at).collect();
        format!("void library::{name}<{}>(float*)", arguments.join(", "))
    }

    fn is_told_apart(names: &[String], width: usize) -> Vec<String> {
        let short = shortened_apart(names, width);
        let mut looks = short.clone();
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), names.len(), "{short:?}");
        assert!(short.iter().all(|look| look.chars().count() <= width), "{short:?}");
        short
    }

    #[test]
    fn long_names_that_differ_in_one_argument_show_it() {
        let names = ["float", "double", "half"].map(|argument| template("gemm", 150, argument));
        assert!(names.iter().all(|name| name.len() > 9_000));
        for width in [20, 40, 60, 100] {
            let short = is_told_apart(&names, width);
            for (look, argument) in short.iter().zip(["float", "double", "half"]) {
                assert!(look.contains(&argument[..2]) && look.contains("gemm"), "{width}: {look}");
            }
        }
        let short = is_told_apart(&names, 40);
        assert!(short[0].contains("float") && short[1].contains("double") && short[2].contains("half"), "{short:?}");
        assert!(short[0].starts_with("library::gemm.."), "{short:?}");
    }

    #[test]
    fn names_that_differ_at_several_places_are_told_apart_one_place_after_another() {
        let mut names = vec![template("gemm", 10, "a"), template("gemm", 200, "b"), template("gemm", 200, "c")];
        names.push(template("gemm", 290, "d"));
        is_told_apart(&names, 40);
        // One that is the begin of another.
        is_told_apart(&["a".repeat(5_000), "a".repeat(6_000), format!("{}b", "a".repeat(5_000))], 40);
    }

    #[test]
    fn other_names_stay_as_they_are_and_the_same_name_twice_is_one() {
        let names = ["relu", "relu", "softmax", "at::native::vectorized_elementwise_kernel<4, float>"];
        let short = shortened_apart(&names, 30);
        assert_eq!(short, names.map(|name| shortened(name, 30)));
        let tiny = shortened_apart(&["abcdefgh<1>", "abcdefgh<2>", "abcdefgh<3>"], 6);
        assert!(tiny[0] != tiny[1] && tiny[1] != tiny[2] && tiny[0] != tiny[2], "{tiny:?}");
        assert!(tiny.iter().all(|look| look.chars().count() <= 6), "{tiny:?}");
    }
}
