//! Findings about what a GPU does in a step: which kernels, and which copies beside them.

use super::{evidence, found};
use crate::analysis::{ALL, Section, Value};
use crate::trace::testing::{START, TestTrace};

/// Steps of a product of 900 us, and a kernel of this name of 100 us.
fn with(second: &str) -> Section {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        let step = thread.range_begin();
        let begin = thread.now + 10_000;
        let end = thread.launch_running("gemm", 5_000, 7, (begin, 900_000));
        let end = thread.launch_running(second, 5_000, 7, (end, 100_000));
        thread.sync("cuStreamSynchronize", "stream", end - thread.now + 1_000);
        thread.range_end(None, "step", step, true);
    }
    trace.section(ALL[0])
}

#[test]
fn kernels_that_only_change_layouts_cost_at_most_their_time() {
    let copies = "void at::native::direct_copy_kernel_cuda<float>(float*)";
    let section = with(copies);
    assert_eq!(found(&section), [("layout-kernels".to_owned(), 100)], "{:?}", section.literal);
    let said = evidence(&section);
    assert!(said.contains("10 % of the kernels' time") && said.contains("direct_copy_kernel_cuda"), "{said}");
    let other = with("relu");
    assert_eq!(found(&other), [], "{:?}", other.literal);
    // Where there is no such kernel nobody need be told that it is fine.
    assert!(matches!(other.get("checked_fine"), Value::Text(fine) if !fine.contains("layouts")), "{:?}", other.literal);
}

/// Steps of a kernel of 600 us and a copy of pinned memory of 300 us, which begins with the kernel, or when it has ended.
fn copies_and_kernels(beside: bool) -> Section {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        let step = thread.range_begin();
        let begin = thread.now + 6_000;
        let end = thread.launch_running("gemm", 5_000, 7, (begin, 600_000));
        thread.copy_running("HtoD", 8 << 20, 5_000, (if beside { begin } else { end }, 300_000));
        let last = if beside { end } else { end + 300_000 };
        thread.sync("cuStreamSynchronize", "stream", last - thread.now + 1_000);
        thread.range_end(None, "step", step, true);
    }
    trace.section(ALL[0])
}

#[test]
fn copies_of_pinned_memory_are_found_where_nothing_runs_beside_them() {
    let alone = copies_and_kernels(false);
    assert_eq!(found(&alone), [("exposed-copies".to_owned(), 300)], "{:?}", alone.literal);
    let said = evidence(&alone);
    assert!(said.contains("nothing else for 300 us of a step; cuMemcpyAsync HtoD 1 a step of 8.00 MiB"), "{said}");
    let beside = copies_and_kernels(true);
    assert_eq!(found(&beside), [], "{:?}", beside.literal);
    let Value::Text(fine) = beside.get("checked_fine") else { panic!("{:?}", beside.literal) };
    assert!(fine.contains("exposed copies"), "{fine}");
}
