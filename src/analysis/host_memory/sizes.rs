//! Allocations by the size of their blocks, with what each number may be off by.

use super::super::Facts;
use super::super::passes::host_memory::{OfSize, SIZES, smallest};
use super::super::section::{Column, Table, Unit, Value, column, percent};
use super::is_sampled;

/// All blocks of a class of sizes.
fn of_class(facts: &Facts<'_>, class: usize) -> OfSize {
    let mut sum = OfSize::default();
    for (_, host) in facts.host_memory.processes.iter() {
        sum.all.add(host.sizes[class].all);
        sum.blocks_variance += host.sizes[class].blocks_variance;
    }
    sum
}

/// Two standard deviations, in percent.
pub(super) fn error_percent(variance: f64, of: f64) -> f64 {
    if of > 0.0 { 200.0 * variance.max(0.0).sqrt() / of } else { 0.0 }
}

/// What the number of all allocations may be off by.
pub(super) fn error_of_all(facts: &Facts<'_>) -> f64 {
    let classes = || (0..SIZES).map(|class| of_class(facts, class));
    error_percent(classes().map(|of| of.blocks_variance).sum(), classes().map(|of| of.all.blocks).sum())
}

/// The table. `known`: nothing is missing, so that errors say what a number may be off by.
pub(super) fn table(facts: &Facts<'_>, known: bool) -> Table {
    const COLUMNS: [Column; 6] = [
        column("from_bytes", "From", Unit::BytesEach),
        column("allocations", "Allocations", Unit::Count),
        column("allocations_error_percent", "+-", Unit::Percent),
        column("allocated_bytes", "Allocated", Unit::Bytes),
        column("error_percent", "+-", Unit::Percent),
        column("allocated_percent", "Share", Unit::Percent),
    ];
    let sampled = is_sampled(facts);
    let whole: f64 = facts.host_memory.processes.iter().map(|(_, host)| host.bytes).sum();
    let error = |variance, of| Value::from((sampled && known).then(|| error_percent(variance, of)));
    let row = |class: usize| {
        let OfSize { all, blocks_variance } = of_class(facts, class);
        (all.blocks > 0.0).then(|| {
            vec![
                smallest(class).into(),
                (all.blocks.round() as i64).into(),
                error(blocks_variance, all.blocks),
                all.bytes.into(),
                error(all.variance, all.bytes),
                percent(all.bytes, whole),
            ]
        })
    };
    let title = match sampled {
        true => "By size (each row up to twice its size; estimates)",
        false => "By size (each row up to twice its size)",
    };
    Table::new("sizes", title, &COLUMNS, (0..SIZES).filter_map(row).collect())
}
