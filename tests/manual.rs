//! Completions and pages of the manual: a shell understands them, and they say what `--help` does.

use std::fs;
use std::process::Command;

use crate::util::Scratch;

/// What bash offers after these words.
fn offered(scratch: &Scratch, words: &[&str]) -> Vec<String> {
    let file = scratch.file("gputrace.bash", scratch.gputrace(&["completions", "bash"]).expect(0).text());
    let [.., before, last] = words else { panic!("{words:?}") };
    let script = format!(
        "source {}; COMP_WORDS=({} '{last}'); COMP_CWORD={}; _gputrace gputrace '{last}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        file.display(),
        words[..words.len() - 1].join(" "),
        words.len() - 1
    );
    let done = Command::new("bash").args(["--norc", "-c", &script]).output().expect("bash runs");
    assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
    let offered = String::from_utf8(done.stdout).expect("text");
    offered.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_subcommands_options_and_values() {
    let scratch = Scratch::new();
    assert_eq!(offered(&scratch, &["gputrace", "rep"]), ["report"]);
    assert_eq!(offered(&scratch, &["gputrace", "__"]), [""; 0], "what is not for people");
    assert_eq!(offered(&scratch, &["gputrace", "report", "--exp"]), ["--explain"]);
    let formats = offered(&scratch, &["gputrace", "report", "--format", ""]);
    assert!(["text", "json", "markdown", "html"].iter().all(|known| formats.iter().any(|f| f == known)), "{formats:?}");
    let names = offered(&scratch, &["gputrace", "report", "--only", "gpu-"]);
    assert!(["gpu-gaps", "gpu-utilisation"].iter().all(|known| names.iter().any(|name| name == known)), "{names:?}");
    for shell in ["zsh", "fish"] {
        let text = scratch.gputrace(&["completions", shell]).expect(0).text();
        assert!(text.contains("report") && text.contains("explain"), "{shell}");
    }
}

#[test]
fn the_manual_has_every_option_that_help_has() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("man1");
    scratch.gputrace(&["man", "-o", &folder.to_string_lossy()]).expect(0);
    let page = |name: &str| fs::read_to_string(folder.join(format!("{name}.1"))).expect("a page");
    let help = scratch.gputrace(&["--help"]).expect(0).text();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> =
        commands.filter(|line| !line.starts_with("    ")).filter_map(|l| l.split_whitespace().next()).collect();
    assert!(names.len() >= 15, "{names:?}");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), names.len() + 1, "and its own");
    for name in names {
        let page = page(&format!("gputrace-{name}"));
        assert!(page.contains(&format!(".TH gputrace-{name} 1")), "{page}");
        let help = scratch.gputrace(&[name, "--help"]).expect(0).text();
        let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        for option in lines.filter_map(|line| line.split("--").nth(1)) {
            let option: String = option.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            let escaped = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&escaped), "{name}: --{option} is not in its page");
        }
    }
    assert_eq!(scratch.gputrace(&["man", "report"]).expect(0).text(), page("gputrace-report"));
    let refused = scratch.gputrace(&["man", "reprot"]).expect(2);
    assert!(refused.stderr.contains("reprot: no such subcommand; there are record, report"), "{}", refused.stderr);
    let below = scratch.file("file", "").join("below");
    let refused = scratch.gputrace(&["man", "-o", &below.to_string_lossy()]).expect(1);
    assert!(refused.stderr.contains("cannot be written"), "{}", refused.stderr);
}
