//! A request allocates nothing, in disk, middle layer and driver.

use qpair_block::Op;
use qpair_memory::CountingAllocator;
use qpair_mpt3sas::Mpt3sas;
use qpair_pci::InProcess;
use qpair_scsi::ScsiOptions;
use qpair_scsi::host::Unit;

use crate::rig::hba_options;
use crate::stub::Stub;
use crate::worker::Worker;

#[test]
fn a_request_allocates_nothing() {
    let stub = Stub::new("size=64MiB,medium=null,cache=on", false);
    let function = std::sync::Arc::new(InProcess::new("stub", stub.clone()));
    let driver = Mpt3sas::open(function, hba_options()).unwrap();
    let unit = Unit { target: 0, lun: Default::default() };
    let disk = qpair_scsi::ScsiDisk::open(driver, unit, "stub", ScsiOptions::default()).unwrap();
    let mut worker = Worker::new(&disk, 32);
    stub.answer_at_once();
    for op in [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes] {
        // Warm up buffers that grow once, and state that the first request creates.
        let mut round = |round: u64| {
            let requests: Vec<_> =
                (0..32).map(|number| worker.request(op, number, round as u8)).collect();
            worker.completions.reserve(32);
            let before = CountingAllocator::allocations();
            for request in requests {
                worker.channel.submit(request).map_err(|_| "busy").unwrap();
            }
            worker.channel.kick();
            while worker.channel.in_flight() > 0 {
                worker.channel.poll(&mut worker.completions);
            }
            let made = CountingAllocator::allocations() - before;
            assert!(worker.completions.drain(..).all(|done| done.result.is_ok()));
            made
        };
        let _first = (0..4).map(&mut round).sum::<u64>();
        let made: u64 = (0..100).map(&mut round).sum();
        assert_eq!(made, 0, "{op:?}");
    }
    let before = CountingAllocator::allocations();
    drop(vec![1u8; 10]);
    assert_eq!(CountingAllocator::allocations() - before, 1, "they are counted");
}
