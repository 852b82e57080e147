//! Disks behind the soft host pass the suite of every block device.

use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_conformance::{Options, run};
use qpair_scsi::ScsiOptions;
use qpair_softdev::SoftVirtioScsiOptions;

use crate::rig::{Rig, device_options};

fn pass(options: SoftVirtioScsiOptions) {
    let open =
        || -> Arc<dyn BlockDevice> { Rig::new(options.clone()).disk(0, ScsiOptions::default()) };
    let report = run(open, Options::default());
    println!("{report}");
    report.assert_passed();
    let skipped: Vec<&str> = report.skipped().map(|(name, _)| name).collect();
    assert_eq!(skipped, ["grow", "read_only_refuses_writes"], "{report}");
}

#[test]
fn with_tables_of_descriptors() {
    pass(device_options());
}

#[test]
fn with_descriptors_of_the_ring_alone() {
    pass(SoftVirtioScsiOptions { has_indirect: false, ..device_options() });
}

#[test]
fn with_a_volatile_write_cache_and_short_queues() {
    let options = device_options();
    pass(SoftVirtioScsiOptions { volatile_write_cache: true, queue_entries: 8, ..options });
}
