//! Names of pipelines, whose addresses are used again.

use super::{assert_dispatches, each, sorted};
use crate::util::Row;

#[test]
fn a_pipeline_at_the_address_of_another_has_its_own_name() {
    each("metal_every.m", &["pipelines"], assert_dispatches);
}

#[test]
fn a_pipeline_of_the_background_has_its_label_for_a_name_and_never_anothers() {
    each("metal_every.m", &["background"], |run| {
        let names = run.trace.names();
        let table = run.trace.table("dispatches");
        let name = |row: &Row| row.maybe_int("name_id").map(|id| names[&id].clone());
        let seen: Vec<Option<String>> = sorted(&table, "start_ns").iter().map(name).collect();
        let one = |second: Option<&str>| [Some("first_100us".to_owned()), second.map(str::to_owned)];
        let pairs: Vec<[Option<String>; 2]> = (0..6).map(|i| one((i % 2 == 0).then_some("its own"))).collect();
        assert_eq!(seen, pairs.concat(), "{}", run.who);
    });
}
