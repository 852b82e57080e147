//! A stripe whose members grow and shrink.

use std::sync::Arc;

use qpair_block::time::SimClock;
use qpair_block::{BlockDevice, Member, StripeDevice};
use qpair_sim_block::{SimDevice, SimOptions};

#[test]
fn shrinks_to_whole_rows() {
    let clock = SimClock::new();
    let disk = |seed| Arc::new(SimDevice::new(SimOptions::new(seed, &clock)).unwrap());
    let disks = [disk(0), disk(8192)];
    let members = disks.iter().zip([0, 8192]);
    let members =
        members.map(|(disk, start_bytes)| Member { device: disk.clone(), start_bytes }).collect();
    let stripe = StripeDevice::new(4096, members).unwrap();
    stripe.grow(20 * 4096).unwrap();
    stripe.shrink(2 * 4096 + 1).unwrap();
    assert_eq!(stripe.size_bytes(), 4 * 4096);
    assert_eq!(disks.each_ref().map(|it| it.size_bytes()), [2 * 4096, 8192 + 2 * 4096]);
    stripe.grow(6 * 4096).unwrap();
    assert_eq!(stripe.size_bytes(), 6 * 4096);
}
