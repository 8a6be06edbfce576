//! The book's pages that say what the command itself says are made of it, and are as it would make them today: each command, analysis,
//! finding and table has its page.
//!
//! Whether the book builds and its links lead somewhere is `ci/book/build`'s to say, which has mdbook.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::util::{Scratch, gputrace, needs, repository};

/// Folders of the book in which all pages are made.
const MADE: [&str; 3] = ["analyses", "commands", "findings"];

/// Markdown files of a folder and of those below it, as they are called from there.
fn pages(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for below in [""].into_iter().chain(MADE) {
        let files = fs::read_dir(folder.join(below)).expect("a folder of pages").flatten().map(|entry| entry.path());
        let markdown = files.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
        found.extend(markdown.map(|file| Path::new(below).join(file.file_name().expect("a name"))));
    }
    found
}

#[test]
fn what_the_book_says_of_the_command_is_what_the_command_says() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let (book, made) = (repository().join("docs"), scratch.path().join("made"));
    let script = repository().join("ci/book/pages");
    let output = Command::new("python3").arg(script).arg(gputrace()).arg(&made).output().expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let (there, today) = (pages(&book), pages(&made));
    assert!(today.len() > 70, "{today:?}");
    let is_made = |page: &&PathBuf| page.parent().is_some_and(|folder| !folder.as_os_str().is_empty());
    let left: Vec<_> = there.iter().filter(is_made).filter(|page| !today.contains(*page)).collect();
    assert!(left.is_empty(), "pages of what is no more, to be removed: {left:?}");
    let text = |folder: &Path, page: &Path| fs::read_to_string(folder.join(page)).unwrap_or_default();
    let stale: Vec<_> = today.iter().filter(|page| text(&book, page) != text(&made, page)).collect();
    assert!(stale.is_empty(), "not what the command says today; `ci/book/pages GPUTRACE` renews them: {stale:?}");
}
