//! A system whose own libraries allocate through the shim, as where dyld patches its shared cache.

use crate::util::{Processor, Scratch, Target, apple_targets, count};

/// What the program prints, how it ends and what the GPU did are the same where the system's own libraries allocate through us, before
/// the shim's constructor, inside of the functions that it calls and inside of hooked messages.
#[test]
fn a_system_whose_own_allocations_come_here_is_traced_as_any_other() {
    let Some((dylibs, _)) = apple_targets() else { return };
    for processor in [Processor::X86, Processor::Arm] {
        for mode in ["full", "sample=1", "sample", "off"] {
            processor.tries(|| {
                let scratch = Scratch::new();
                let run = |target: Target<'_>| {
                    let target = target.args(["labels"]).options(["--malloc", mode]);
                    let plain = target.plain();
                    let traced = target.traced();
                    assert_eq!(
                        (plain.text(), plain.code()),
                        (traced.text(), traced.code()),
                        "{mode}: {}",
                        traced.stderr
                    );
                    assert_eq!(plain.stderr, traced.own_stderr(), "{mode}");
                    let trace = traced.read();
                    trace.assert_balanced();
                    let mut processes = trace.manifest().processes;
                    processes.retain(|process| process.exe.contains(".m-"));
                    let [process] = &processes[..] else { panic!("{processor:?} {mode}: {processes:?}") };
                    let of = |class: &str| count(process, class).seen;
                    let allocations = of("host_alloc");
                    (["commit", "encode", "sync", "transfer", "alloc", "free"].map(of), allocations)
                };
                let (messages, plain) = run(processor.target(&scratch, &dylibs, "metal_every.m"));
                let (patched, all) = run(processor.patched(&scratch, &dylibs, "metal_every.m"));
                assert_eq!(messages, patched, "{processor:?} {mode}");
                assert_eq!(
                    all > plain,
                    mode != "off",
                    "{processor:?} {mode}: {plain} of the program's, {all} with the system's"
                );
            });
        }
    }
}
