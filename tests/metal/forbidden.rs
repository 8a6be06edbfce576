//! What Metal allows nobody: it ends the program, or a lenient one passes over it.

use super::each_with;
use crate::util::count;

#[test]
fn what_metal_forbids_ends_as_it_does_alone() {
    for way in ["twice", "late"] {
        each_with("metal_odd.m", &[way], &[], |run| {
            assert_eq!(run.run.code(), 128 + libc::SIGABRT, "{}", run.who);
            assert!(run.run.stderr.contains("failed assertion"), "{}", run.who);
        });
    }
}

#[test]
fn a_command_buffer_is_one_launch_however_often_it_is_committed() {
    each_with("metal_odd.m", &["twice"], &[("FAKE_METAL_LENIENT", "1")], |run| {
        assert_eq!(run.run.code(), 0, "{}", run.who);
        assert_eq!(run.truth("command_buffer").len(), 1, "{}", run.who);
        let table = run.trace.table("command_buffers");
        let known: Vec<_> = table.rows().map(|row| row.maybe_int("gpu_ns").is_some()).collect();
        assert_eq!((known, run.trace.table("launches").len()), (vec![true], 1), "{}", run.who);
        // Whether it was under way, or had completed.
        let commits = run.trace.table("api").rows().filter(|row| row.text("class") == "commit").count();
        assert_eq!((commits, count(&run.process(), "commit").recorded), (2, 3), "{}", run.who);
        let said = "2 commits of Metal command buffers that had been committed already: ";
        assert!(
            run.process().notes.iter().any(|note| note.starts_with(said)),
            "{}: {:?}",
            run.who,
            run.process().notes
        );
        assert!(!run.run.stderr.contains("no time on the GPU"), "{}: {}", run.who, run.run.stderr);
    });
}
