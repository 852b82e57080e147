//! I/O commands: their effects, and their errors.

use crate::Host;
use crate::host::{DATA, transfer};
use qpair_nvme_wire::command::{DEALLOCATE, cns, io};
use qpair_nvme_wire::registers::CSTS;
use qpair_nvme_wire::{Command, IdentifyNamespace, NSID_ALL, Range, Status};

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
}

#[test]
fn what_is_written_is_read() {
    for (options, block) in
        [("size=1MiB", 512), ("size=1MiB,block=4096", 4096), ("size=1MiB,cache=on", 512)]
    {
        let mut host = Host::new(options);
        let mut queue = host.queue(1, 8, None);
        let bytes = pattern(4096, 1);
        host.put(DATA, &bytes);
        let blocks = 4096 / block;
        let last = (1 << 20) / u64::from(block) - u64::from(blocks);
        for first in [0, 8 / u64::from(block / 512), last] {
            let write = transfer(io::WRITE, first, blocks, DATA);
            assert_eq!(host.status(&mut queue, write), Status::SUCCESS);
            let read = transfer(io::READ, first, blocks, DATA + 0x10000);
            assert_eq!(host.status(&mut queue, read), Status::SUCCESS);
            assert_eq!(host.get(DATA + 0x10000, 4096), bytes);
            host.bytes().zero(1 << 20 | 0x10000, 4096);
        }
        // The buffer is not aligned, and lies on two pages.
        let read = transfer(io::READ, 0, blocks, DATA + 0x10E04);
        assert_eq!(host.status(&mut queue, read), Status::SUCCESS);
        assert_eq!(host.get(DATA + 0x10E04, 4096), bytes);
    }
}

#[test]
fn zeroes_deallocation_compare_and_flush() {
    let mut host = Host::new("size=1MiB");
    let mut queue = host.queue(1, 8, None);
    let bytes = pattern(4096, 2);
    host.put(DATA, &bytes);
    let mut run = |command| host.status(&mut queue, command);
    assert_eq!(run(transfer(io::WRITE, 0, 8, DATA)), Status::SUCCESS);
    assert_eq!(run(transfer(io::COMPARE, 0, 8, DATA)), Status::SUCCESS);
    assert_eq!(run(transfer(io::COMPARE, 1, 7, DATA)), Status::COMPARE_FAILURE);
    assert_eq!(run(Command::blocks_of(io::WRITE_ZEROES, 1, 1, 2)), Status::SUCCESS);
    assert_eq!(run(Command::new(io::FLUSH, 1)), Status::SUCCESS);
    assert_eq!(run(Command::new(io::FLUSH, NSID_ALL)), Status::SUCCESS);
    assert_eq!(run(Command::new(io::FLUSH, 2)), Status::INVALID_NAMESPACE);
    let ranges = [(4, 1), (0, 0), (6, 2)];
    for (number, (first_block, blocks)) in ranges.into_iter().enumerate() {
        let range = Range { attributes: 0, blocks, first_block };
        host.put(DATA + 0x2000 + 16 * number as u64, &range.encode());
    }
    let mut deallocate = Command::new(io::DATASET_MANAGEMENT, 1);
    deallocate.set_prps(DATA + 0x2000, 0);
    deallocate.0[10] = 2;
    deallocate.0[11] = DEALLOCATE;
    let mut run = |command| host.status(&mut queue, command);
    assert_eq!(run(deallocate), Status::SUCCESS);
    assert_eq!(run(transfer(io::READ, 0, 8, DATA + 0x1000)), Status::SUCCESS);
    let mut expected = bytes;
    for block in [1, 2, 4, 6, 7] {
        expected[block * 512..][..512].fill(0);
    }
    assert_eq!(host.get(DATA + 0x1000, 4096), expected);
}

#[test]
fn commands_that_are_wrong() {
    let mut host = Host::new("size=1MiB");
    let mut queue = host.queue(1, 4, None);
    let mut is = |command: Command, status| assert_eq!(host.status(&mut queue, command), status);
    is(transfer(io::READ, 2048, 1, DATA), Status::LBA_OUT_OF_RANGE);
    is(transfer(io::READ, 2047, 2, DATA), Status::LBA_OUT_OF_RANGE);
    is(transfer(io::WRITE, u64::MAX, 1, DATA), Status::LBA_OUT_OF_RANGE);
    is(transfer(io::WRITE, u64::MAX - 3, 8, DATA), Status::LBA_OUT_OF_RANGE);
    is(Command::blocks_of(io::WRITE_ZEROES, 1, 2000, 49), Status::LBA_OUT_OF_RANGE);
    for nsid in [0, 2, u32::MAX] {
        let mut read = transfer(io::READ, 0, 1, DATA);
        read.0[1] = nsid;
        is(read, Status::INVALID_NAMESPACE);
    }
    is(Command::new(0x7F, 1), Status::INVALID_OPCODE);
    for wrong in [1 << 14, 1 << 15, 1 << 8, 1 << 9] {
        let mut read = transfer(io::READ, 0, 1, DATA);
        read.0[0] |= wrong;
        is(read, Status::INVALID_FIELD);
    }
    let mut deallocate = Command::new(io::DATASET_MANAGEMENT, 1);
    deallocate.0[10] = 255;
    deallocate.0[11] = DEALLOCATE;
    deallocate.set_prps(DATA, 0);
    is(deallocate, Status::SUCCESS);
    deallocate.set_prps(DATA + 4, DATA + 4096);
    is(deallocate, Status::SUCCESS);
    deallocate.set_prps(DATA + 4, 8);
    is(deallocate, Status::INVALID_PRP_OFFSET);
    host.put(DATA, &Range { attributes: 0, blocks: 9, first_block: 2040 }.encode());
    deallocate.set_prps(DATA, 0);
    assert_eq!(host.status(&mut queue, deallocate), Status::LBA_OUT_OF_RANGE);
}

#[test]
fn what_was_not_flushed_is_lost_with_the_power() {
    let lost: Vec<u32> = (0..20).map(sectors_lost).collect();
    assert!(lost.contains(&0) && lost.contains(&90), "{lost:?}");
    assert!(lost.iter().any(|lost| (20..70).contains(lost)), "{lost:?}");
}

/// Returns the number of sectors, of 90 that were not flushed, that a power cut takes.
fn sectors_lost(seed: u64) -> u32 {
    let mut host = Host::new("size=1MiB,cache=on,serial=POWER");
    let block_of = |value: u8| vec![value; 512];
    let mut queue = host.queue(1, 64, None);
    let write = |host: &Host, queue: &mut _, block: u64, value: u8, fua: bool| {
        host.put(DATA, &block_of(value));
        let mut write = transfer(io::WRITE, block, 1, DATA);
        write.0[12] |= u32::from(fua) << 30;
        assert_eq!(host.status(queue, write), Status::SUCCESS);
    };
    for block in 0..100 {
        write(&host, &mut queue, block, 1, false);
    }
    assert_eq!(host.status(&mut queue, Command::new(io::FLUSH, 1)), Status::SUCCESS);
    for block in 0..100 {
        write(&host, &mut queue, block, 2, block % 10 == 0);
    }
    host.device.power_cut(seed);
    assert_eq!(host.read32(CSTS), u32::MAX, "gone");
    host.device.insert();
    host.enable();
    let mut queue = host.queue(1, 64, None);
    let mut lost = 0;
    for block in 0..100 {
        let read = transfer(io::READ, block, 1, DATA);
        assert_eq!(host.status(&mut queue, read), Status::SUCCESS);
        let got = host.get(DATA, 512);
        if got == block_of(1) {
            assert_ne!(block % 10, 0, "was forced to stable storage");
            lost += 1;
        } else {
            assert_eq!(got, block_of(2));
        }
    }
    lost
}

#[test]
fn namespaces_have_names() {
    let mut host = Host::new("size=1MiB+8MiB,serial=SERIAL");
    let names = [1, 2].map(|nsid| {
        let identify = Command::identify(cns::NAMESPACE, nsid, DATA);
        assert_eq!(host.admin_status(identify), Status::SUCCESS);
        let page = IdentifyNamespace::parse(&host.get(DATA, 4096).try_into().unwrap());
        assert_eq!(page.eui64[0] & 3, 2, "assigned locally");
        (page.nguid, page.eui64)
    });
    assert!(names[0].0 != names[1].0 && names[0].1 != names[1].1);
}
