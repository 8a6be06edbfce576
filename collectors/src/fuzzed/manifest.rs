//! A manifest of any bytes: it is one, or an error; and what a collector does with one that it goes on with.

use std::collections::BTreeSet;

use crate::manifest::Manifest;
use crate::recover::OnDisk;
use crate::share;
use crate::writer::Shared;

pub(super) fn manifest(data: &[u8]) {
    let Ok(mut manifest) = serde_json::from_slice::<Manifest>(data) else { return };
    let text = serde_json::to_string(&manifest).expect("it can be written");
    // But for the last digit of a number that is not whole it is the same again.
    let again: Manifest = serde_json::from_str(&text).expect("and read again");
    assert_eq!(
        (again.processes.len(), again.removed_events.len()),
        (manifest.processes.len(), manifest.removed_events.len())
    );
    let _ = (manifest.is_imported(), manifest.is_cut_short());
    let shares: Vec<_> = share::from_text(&manifest.removed_events).take(64).collect();
    let report = Shared::default();
    let mut report = report.lock().expect("nobody else's");
    report.go_on(&manifest);
    report.complete(&mut manifest);
    shares.iter().for_each(|share| manifest.lose(share));
    let mut on_disk = OnDisk::default();
    shares.iter().for_each(|share| on_disk.add(*share));
    let _ = on_disk.split_off(&BTreeSet::from([1]));
    on_disk.correct(&mut manifest, false);
}
