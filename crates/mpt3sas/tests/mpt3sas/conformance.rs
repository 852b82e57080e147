//! Disks behind the soft HBA pass the suite of every block device.

use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_conformance::{Options, run};
use qpair_scsi::ScsiOptions;

use crate::rig::Rig;

fn pass(text: &str) {
    let open = || -> Arc<dyn BlockDevice> { Rig::new(text).disk(0, ScsiOptions::default()) };
    let report = run(open, Options::default());
    println!("{report}");
    report.assert_passed();
    let skipped: Vec<&str> = report.skipped().map(|(name, _)| name).collect();
    assert_eq!(skipped, ["grow", "read_only_refuses_writes"], "{report}");
}

#[test]
fn blocks_of_512_and_4096() {
    pass("size=8MiB,block=512");
    pass("size=8MiB,block=4096");
}

#[test]
fn with_a_volatile_write_cache() {
    pass("size=8MiB,block=512,cache=on");
}

/// The fewest requests that a driver can do with.
#[test]
fn with_little_credit() {
    pass("size=8MiB,credit=128,queues=8");
}
