//! Whether devices can be read from outside, asked in the child that asks the driver.

use std::io::Write;

use anyhow::Result;

use super::Check;

/// The child's answer: NVML is only asked where the driver has devices.
pub(super) fn probe(out: &mut impl Write) -> Result<()> {
    match gputrace_collectors::counters::probe() {
        Ok(found) => writeln!(out, "nvml={found}")?,
        Err(why) => writeln!(out, "nvml_error={why}")?,
    }
    Ok(())
}

/// A line where the child asked.
pub(super) fn judge<'a>(value: &impl Fn(&str) -> Option<&'a str>) -> Option<Check> {
    let refused = || Some(Check::note("counters", value("nvml_error")?, "the rest of a trace is as ever"));
    value("nvml").map(|found| Check::fine("counters", found)).or_else(refused)
}
