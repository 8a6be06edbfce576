//! Gains of a job: what one rank does not wait for any more gains nothing while another one is as late as before.

use super::found;
use crate::analysis::{ALL, Section};
use crate::trace::testing::{START, TestTrace};

/// 40 steps of two ranks that end in a collective of 30 us. Rank 0 waits for a kernel of 50 us and is then outside of the driver for
/// 100 us, before it has 40 us of work; rank 1 has a kernel that takes so long.
fn ranks(kernel_ns: i64) -> Section {
    let mut trace = TestTrace::new();
    let ready_ns = (kernel_ns + 12_000).max(250_000);
    for rank in 0..2 {
        let process = i64::from(rank) + 1;
        trace.process(process, 100 + rank, Some(rank), START + 100_000_000);
        trace.world(process, rank, 2);
        let mut thread = trace.thread(process, 11);
        thread.device = rank;
        for _ in 0..40 {
            let (step, began) = (thread.range_begin(), thread.now);
            let ready = if rank == 0 {
                let end = thread.launch_running("loss", 5_000, 7, (thread.now + 6_000, 50_000));
                thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
                thread.host(100_000);
                thread.launch_running("gemm", 5_000, 7, (thread.now + 6_000, 40_000))
            } else {
                thread.launch_running("gemm", 5_000, 7, (thread.now + 6_000, kernel_ns))
            };
            let (end, call) = (began + ready_ns + 30_000, thread.now);
            thread.launch_running("ncclDevKernel_AllReduce", 3_000, 7, (ready, end - ready));
            thread.now = call;
            thread.collective("ncclAllReduce", "collective", 1, 4096, false, 5_000);
            thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
            thread.host(1_000);
            thread.range_end(None, "step", step, true);
        }
    }
    trace.section(ALL[0])
}

#[test]
fn a_wait_of_a_rank_gains_no_more_than_the_rank_that_it_waits_for_afterwards() {
    let gain = |section: &Section| {
        let waits = found(section).into_iter().filter(|(name, _)| name == "wait-every-step");
        waits.map(|(_, gain_us)| gain_us).max().unwrap_or(0)
    };
    // Rank 1 has work for the whole step of some 390 us: without rank 0's wait the collective comes as late as it did.
    let late = ranks(340_000);
    assert!(gain(&late) <= 15, "{:?}", late.literal);
    // With 100 us of work rank 1 waits for rank 0, and the wait is what keeps both.
    let early = ranks(100_000);
    assert!(gain(&early) >= 80, "{:?}", early.literal);
}
