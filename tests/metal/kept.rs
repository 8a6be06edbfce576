//! What the program holds, and what it hands over, is its own: objects have as many references as without gputrace, and blocks are
//! called by the addresses that were given.

use super::each;

#[test]
fn objects_are_held_by_nobody_else_and_blocks_are_called_as_they_were_given() {
    // That its output is the same alone is seen for each program; here that it says something.
    each("metal_kept.m", &[], |run| {
        let text = run.run.text();
        assert!(text.contains("\n4 of 4 blocks called are the program's\n"), "{}: {text}", run.who);
        for what in
            ["queue", "pipeline", "command buffer", "encoder", "queue of Metal 4", "command buffer of Metal 4", "label"]
        {
            assert!(format!("\n{text}").contains(&format!("\n{what} ")), "{}: {text}", run.who);
        }
        assert_eq!(run.trace.table("launches").len(), 2, "{}", run.who);
    });
}
