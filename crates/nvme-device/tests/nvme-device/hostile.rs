//! Compares PRP lists with a model, wraps queues, and tests faulty and hasty drivers.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair_block::ErrorKind;
use qpair_memory::{DmaMemory, Mapping};
use qpair_nvme_device::ControllerOptions;
use qpair_nvme_wire::command::io;
use qpair_nvme_wire::registers::{CC, CC_RUN, CSTS, CSTS_FATAL, CSTS_READY, doorbell};
use qpair_nvme_wire::{Command, Status};
use qpair_pci::{IrqEvent, PciDevice};

use crate::blocks::{Host, device, options, small};
use crate::host::{self, DATA, IOVA, MEMORY_BYTES, transfer};

/// Lays out PRP entries for `len` bytes over random pages of the data area. Returns also the
/// addresses page by page, as a model reads them.
fn scatter(
    host: &Host,
    rng: &mut fastrand::Rng,
    lists: u64,
    len: usize,
    command: &mut Command,
) -> Vec<(u64, usize)> {
    let mut pages: Vec<u64> = (0..(MEMORY_BYTES as u64 - (1 << 20)) / 4096).collect();
    rng.shuffle(&mut pages);
    let mut pages = pages.into_iter().map(|page| DATA + page * 4096);
    let first = pages.next().unwrap() + rng.u64(0..1024) * 4;
    let in_first = len.min((4096 - first % 4096) as usize);
    let mut parts = vec![(first, in_first)];
    let mut rest = len - in_first;
    while rest > 0 {
        let now = rest.min(4096);
        parts.push((pages.next().unwrap(), now));
        rest -= now;
    }
    let second = match parts.len() {
        1 => rng.u64(..),
        2 => parts[1].0,
        _ => {
            // A list that begins anywhere in its page, and continues in others.
            let start = rng.u64(0..512);
            let (mut list, mut at) = (lists, start);
            let entries = &parts[1..];
            for (number, (address, _)) in entries.iter().enumerate() {
                if at == 511 && number + 1 < entries.len() {
                    let next = list + 4096;
                    host.put(list + at * 8, &next.to_le_bytes());
                    (list, at) = (next, 0);
                }
                host.put(list + at * 8, &address.to_le_bytes());
                at += 1;
            }
            lists + start * 8
        }
    };
    command.set_prps(first, second);
    parts
}

#[test]
fn prp_lists_against_a_model() {
    let mut host =
        Host::of(device(ControllerOptions { mdts: 10, ..options() }, &[(16 << 20, 512)]));
    let mut queue = host.queue(1, 4, None);
    let lists = host.page(4);
    for seed in 0..120 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let blocks = if rng.bool() { rng.u32(1..=40) } else { rng.u32(1..=8192) };
        let len = blocks as usize * 512;
        let first = rng.u64(0..=(16 << 20) / 512 - u64::from(blocks));
        let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
        let mut write = Command::blocks_of(io::WRITE, 1, first, blocks);
        let parts = scatter(&host, &mut rng, lists, len, &mut write);
        let mut at = 0;
        for (address, len) in parts {
            host.put(address, &bytes[at..at + len]);
            at += len;
        }
        assert_eq!(host.status(&mut queue, write), Status::SUCCESS, "seed {seed}");
        host.bytes().zero(1 << 20, MEMORY_BYTES - (1 << 20));
        let mut read = Command::blocks_of(io::READ, 1, first, blocks);
        let parts = scatter(&host, &mut rng, lists, len, &mut read);
        assert_eq!(host.status(&mut queue, read), Status::SUCCESS, "seed {seed}");
        let mut got = Vec::new();
        let mut sum: u64 = 0;
        for (address, len) in parts {
            let part = host.get(address, len);
            sum += part.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            got.extend(part);
        }
        assert!(got == bytes, "seed {seed}");
        // No other memory was written.
        let all: u64 =
            host.get(DATA, MEMORY_BYTES - (1 << 20)).iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(all, sum, "seed {seed}");
    }
}

#[test]
fn addresses_that_are_wrong() {
    let mut host = Host::of(device(options(), &[(16 << 20, 512)]));
    let mut queue = host.queue(1, 4, None);
    let list = host.page(1);
    let end = IOVA + MEMORY_BYTES as u64;
    for (blocks, prp1, prp2, status) in [
        (8, DATA + 1, 0, Status::INVALID_PRP_OFFSET),
        (8, 0, 0, Status::DATA_TRANSFER_ERROR),
        (8, end, 0, Status::DATA_TRANSFER_ERROR),
        (8, end - 2048, 0, Status::DATA_TRANSFER_ERROR),
        (8, !3, 0, Status::DATA_TRANSFER_ERROR),
        (8, DATA + 512, DATA + 4, Status::INVALID_PRP_OFFSET),
        (8, DATA + 512, end, Status::DATA_TRANSFER_ERROR),
        (64, DATA, list + 4, Status::INVALID_PRP_OFFSET),
        (64, DATA, end, Status::DATA_TRANSFER_ERROR),
        (64, DATA, list, Status::DATA_TRANSFER_ERROR),
        // A list in the last word of a page leads to a next page, at address 0.
        (64, DATA, list + 4088, Status::DATA_TRANSFER_ERROR),
        (512, DATA, list, Status::INVALID_FIELD),
    ] {
        let mut read = Command::blocks_of(io::READ, 1, 0, blocks);
        read.set_prps(prp1, prp2);
        assert_eq!(host.status(&mut queue, read), status, "{blocks} {prp1:#x} {prp2:#x}");
    }
    // A list that chains to itself ends with the transfer.
    host.put(list + 4088, &list.to_le_bytes());
    (0..511).for_each(|entry| host.put(list + entry * 8, &DATA.to_le_bytes()));
    let mut read = Command::blocks_of(io::READ, 1, 0, 256);
    read.set_prps(DATA, list + 4088);
    assert_eq!(host.status(&mut queue, read), Status::SUCCESS);
}

#[test]
fn queues_wrap_and_are_never_overrun() {
    let mut host = small(options());
    for entries in [2, 3, 8, 17] {
        let mut queue = host.queue(1, entries, None);
        let mut rng = fastrand::Rng::with_seed(entries.into());
        let (mut sent, mut seen) = (0u16, 0u16);
        for _ in 0..2000 {
            for _ in 0..rng.u32(0..entries) {
                if u32::from(sent - seen) < entries - 1 {
                    let mut command = transfer(io::READ, 0, 1, DATA);
                    command.set_cid(sent);
                    host.push(&mut queue, &command);
                    sent += 1;
                }
            }
            host.ring(&queue);
            host.device.step(1);
            for _ in 0..rng.u32(0..entries) {
                if let Some(entry) = host.pop(&mut queue) {
                    assert_eq!((entry.cid, entry.status), (seen, Status::SUCCESS));
                    seen += 1;
                }
            }
        }
        assert!(seen > 500);
        host.delete(queue);
    }
}

#[test]
fn nothing_is_written_over_what_the_driver_has_not_acknowledged() {
    let mut host = small(ControllerOptions { queues_max: 2, ..options() });
    // The submission queue has room for many more commands than the completion queue.
    let (sq, cq) = (host.page(1), host.page(1));
    assert_eq!(host.admin_status(Command::create_cq(1, 4, cq, None)), Status::SUCCESS);
    assert_eq!(host.admin_status(Command::create_sq(1, 32, sq)), Status::SUCCESS);
    let mut queue = host::Queue { number: 1, entries: 32, sq, cq, tail: 0, head: 0, phase: true };
    for cid in 0..20 {
        let mut command = Command::new(io::FLUSH, 1);
        command.set_cid(cid);
        host.push(&mut queue, &command);
    }
    host.ring(&queue);
    queue.entries = 4;
    for cid in 0..20 {
        assert!(host.device.step_all().progress || cid % 3 != 0);
        let entry = host.bytes().load_u32((cq - IOVA) as usize + queue.head as usize * 16 + 12);
        assert_eq!((entry & 0xFFFF, entry >> 16 & 1 != 0), (cid, queue.phase));
        queue.head = (queue.head + 1) % 4;
        queue.phase ^= queue.head == 0;
        if cid % 3 == 2 {
            host.write32(doorbell(1, true, 4), queue.head);
        }
    }
    // A head beyond the posted entries is not accepted.
    host.write32(doorbell(1, true, 4), 3);
    assert!(!host.device.step(1).progress);
}

#[test]
fn interrupts_come_once_for_what_is_new() {
    let mut host = small(ControllerOptions { queues_max: 2, ..options() });
    let event = || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let (one, admin) = (event(), event());
    let set = |vector, event: &std::os::fd::OwnedFd| {
        host.device.set_irq(vector, Some(IrqEvent::new(event.try_clone().unwrap()).unwrap()))
    };
    assert!(set(1, &one) && set(0, &admin) && !set(3, &one));
    let count = |event: &std::os::fd::OwnedFd| {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).map_or(0, |_| u64::from_le_bytes(bytes))
    };
    let mut queue = host.queue(1, 8, Some(1));
    assert!(count(&admin) > 0);
    let flush = |host: &Host, queue: &mut host::Queue| {
        host.push(queue, &Command::new(io::FLUSH, 1));
        host.ring(queue);
        host.device.step(1);
    };
    flush(&host, &mut queue);
    assert_eq!(count(&one), 1);
    flush(&host, &mut queue);
    assert_eq!(count(&one), 0, "it has not acknowledged the first one");
    // The driver acknowledges only the first entry, as if it had not seen the second: it is
    // signalled again.
    assert!(host.pop(&mut queue).is_some());
    host.device.step(1);
    assert_eq!(count(&one), 1);
    assert!(host.pop(&mut queue).is_some());
    host.device.step(1);
    assert_eq!(count(&one), 0);
    flush(&host, &mut queue);
    assert_eq!(count(&one), 1);
    // A new event is signalled for waiting completions.
    let other = event();
    assert!(host.device.set_irq(1, Some(IrqEvent::new(other.try_clone().unwrap()).unwrap())));
    host.device.step(1);
    assert_eq!((count(&one), count(&other)), (0, 1));
    assert!(host.device.set_irq(1, None));
    assert!(host.pop(&mut queue).is_some());
    flush(&host, &mut queue);
    assert_eq!(count(&other), 0);
}

#[test]
fn memory_that_is_closed_is_not_touched() {
    let mut host = small(options());
    let mut queue = host.queue(1, 8, None);
    let more = 0x1_0000;
    let (memory, _file) = Mapping::new_file(8192).unwrap();
    host.device.map_dma(more, DmaMemory::of_mapping(memory.clone())).unwrap();
    assert_eq!(host.status(&mut queue, transfer(io::READ, 0, 1, more)), Status::SUCCESS);
    let kind = |result: qpair_block::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(host.device.unmap_dma(more, 4096)), ErrorKind::Invalid);
    assert_eq!(kind(host.device.unmap_dma(0x9_0000, 4096)), ErrorKind::NotFound);
    host.device.unmap_dma(more, 8192).unwrap();
    assert_eq!(std::sync::Arc::strong_count(&memory), 1, "it was forgotten");
    let read = transfer(io::READ, 0, 1, more);
    assert_eq!(host.status(&mut queue, read), Status::DATA_TRANSFER_ERROR);
    // Memory that is read-only.
    let (_, file) = Mapping::new_file(4096).unwrap();
    let read_only = Mapping::of_file(file.as_fd(), 0, 4096, false).unwrap();
    host.device.map_dma(more, DmaMemory::of_mapping(read_only)).unwrap();
    assert_eq!(host.status(&mut queue, transfer(io::WRITE, 0, 1, more)), Status::SUCCESS);
    assert_eq!(host.status(&mut queue, read), Status::DATA_TRANSFER_ERROR);
    // The memory of the queues themselves is closed, so the controller cannot continue.
    host.push(&mut queue, &read);
    host.ring(&queue);
    host.device.unmap_all();
    host.device.step(1);
    assert_eq!(host.read32(CSTS), CSTS_READY | CSTS_FATAL);
    assert_eq!(std::sync::Arc::strong_count(&host.memory), 1);
    host.disable();
    host.write32(CC, CC_RUN);
    assert_eq!(host.read32(CSTS), CSTS_FATAL, "there is no memory for the admin queues");
}

#[test]
fn removal_and_insertion() {
    let mut host = small(options());
    let mut queue = host.queue(1, 8, None);
    host.push(&mut queue, &transfer(io::READ, 0, 1, DATA));
    host.ring(&queue);
    host.device.remove();
    assert!(!host.device.step_all().progress);
    assert_eq!((host.read32(CSTS), host.read64(0)), (u32::MAX, u64::MAX));
    let mut config = [0; 2];
    assert!(host.device.read_config(0, &mut config) && config == [0xFF; 2]);
    host.write32(CC, CC_RUN);
    assert!(!host.device.step_all().progress && host.peek(&queue).is_none());
    host.device.insert();
    assert_eq!(host.read32(CSTS), 0);
    host.enable();
}

/// Two threads step the controller while a third resets it, opens and closes memory, and unplugs
/// and plugs it.
#[test]
fn resets_at_any_moment() {
    let device = device(ControllerOptions { queues_max: 2, ..options() }, &[(1 << 20, 512)]);
    let mut host = Host::unready(device.clone());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in [1, 2] {
            let (device, stop) = (&device, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    device.step(number);
                    std::thread::yield_now();
                }
            });
        }
        let mut rng = fastrand::Rng::with_seed(5);
        for round in 0..300 {
            host.enable();
            let mut queues = [host.queue(1, 16, None), host.queue(2, 16, None)];
            for queue in &mut queues {
                for cid in 0..rng.u16(0..15) {
                    let mut command = transfer(io::WRITE, rng.u64(0..2000), 8, DATA);
                    command.set_cid(cid);
                    host.push(queue, &command);
                }
                host.ring(queue);
            }
            (0..rng.u32(0..50)).for_each(|_| std::thread::yield_now());
            match round % 4 {
                0 => host.disable(),
                1 => {
                    host.device.unmap_all();
                    assert_eq!(std::sync::Arc::strong_count(&host.memory), 1);
                    host.disable();
                    let memory = DmaMemory::of_mapping(host.memory.clone());
                    host.device.map_dma(IOVA, memory).unwrap();
                }
                2 => {
                    host.device.remove();
                    host.device.insert();
                    host.disable();
                }
                _ => {
                    host.device.reset();
                    host.disable();
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
