//! Disks behind the soft HBA pass the suite of every block device.

use std::sync::Arc;

use qpair_block::{BlockDevice, Member, StripeDevice};
use qpair_conformance::{Options, run};
use qpair_scsi::ScsiOptions;

use crate::rig::Rig;

fn pass(text: &str) {
    pass_by(|| Rig::new(text).disk(0, ScsiOptions::default()));
}

fn pass_by(open: impl Fn() -> Arc<dyn BlockDevice>) {
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

/// MPI 2.6: requests of one word, reply queues by a list, combined registers if there are more than
/// 16 queues, and registers that sometimes read as zero.
#[test]
fn of_mpi_2_6() {
    pass("size=8MiB,mpi=2.6");
    pass("size=8MiB,mpi=2.6,queues=8");
}

/// A controller with the smallest number of requests that the driver works with.
#[test]
fn with_little_credit() {
    pass("size=8MiB,credit=128,queues=8");
}

/// A stripe resets its members, and waits for the requests that each had in flight.
#[test]
fn two_disks_as_a_stripe() {
    pass_by(|| {
        let rig = Rig::new("size=8MiB,disks=2");
        let member =
            |number| Member { device: rig.disk(number, ScsiOptions::default()), start_bytes: 0 };
        Arc::new(StripeDevice::new(64 << 10, vec![member(0), member(1)]).unwrap())
    });
}
