//! Random requests against a model, on a drive without faults.

use crate::rig::{Drive, Worker, options};
use qpair_nvme::WaitMode;

/// The number of requests of each test: millions if they are cheap.
const REQUESTS: u32 = if cfg!(debug_assertions) { 40_000 } else { 1_000_000 };

#[test]
fn random_requests() {
    for (block, wait) in [(512, WaitMode::Poll), (4096, WaitMode::Poll), (512, WaitMode::Sleep)] {
        let drive = Drive::new(options(8 << 20, block), 10_000, wait);
        let blocks = (8 << 20) / block as usize;
        let mut worker = Worker::new(&drive, 32, 0, blocks, fastrand::u64(..1 << 20));
        worker.run(REQUESTS);
        worker.drain();
        assert_eq!(worker.finish(), []);
    }
}

/// Commands of at most 8 KiB: most requests need several.
#[test]
fn requests_of_many_commands() {
    let soft = qpair_softdev::SoftNvmeOptions { mdts: 1, ..options(8 << 20, 512) };
    let drive = Drive::new(soft, 10_000, WaitMode::Poll);
    let mut worker = Worker::new(&drive, 32, 0, (8 << 20) / 512, fastrand::u64(..1 << 20));
    worker.run(REQUESTS / 4);
    worker.drain();
    assert_eq!(worker.finish(), []);
}

#[test]
fn workers_side_by_side() {
    let drive = Drive::new(options(8 << 20, 512), 10_000, WaitMode::Poll);
    std::thread::scope(|scope| {
        for number in 0..4u64 {
            let drive = &drive;
            scope.spawn(move || {
                let mut worker = Worker::new(drive, 16, number * (2 << 20), 4096, number + 1);
                worker.run(REQUESTS / 4);
                worker.drain();
                assert_eq!(worker.finish(), []);
            });
        }
    });
}
