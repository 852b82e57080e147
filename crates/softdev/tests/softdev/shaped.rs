//! Profiles and faults from the driver's side: every fault with every command to which it applies.

use crate::Host;
use crate::host::{DATA, Queue, transfer};
use qpair_nvme_wire::command::{DEALLOCATE, admin, io};
use qpair_nvme_wire::registers::{CSTS, CSTS_FATAL, CSTS_READY};
use qpair_nvme_wire::{Command, Range, Status};
use qpair_pci::PciDevice;
use qpair_softdev::faults::Plan;

const OPS: [u8; 6] =
    [io::READ, io::WRITE, io::COMPARE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT, io::FLUSH];

/// Returns a command of this opcode on block 8 and the seven blocks after it.
fn command(host: &Host, opcode: u8) -> Command {
    match opcode {
        io::FLUSH => Command::new(opcode, 1),
        io::DATASET_MANAGEMENT => {
            host.put(DATA + 0x4000, &Range { attributes: 0, blocks: 8, first_block: 8 }.encode());
            let mut command = Command::new(opcode, 1);
            command.set_prps(DATA + 0x4000, 0);
            command.0[11] = DEALLOCATE;
            command
        }
        _ => transfer(opcode, 8, 8, DATA),
    }
}

fn submit(host: &Host, queue: &mut Queue, mut command: Command, cid: u16) {
    command.set_cid(cid);
    host.push(queue, &command);
    host.ring(queue);
}

/// Steps the queue until all commands that are due are done.
fn settle(host: &Host, number: u16) {
    for _ in 0..100 {
        host.device.step(number);
    }
}

#[test]
fn commands_fail_as_the_plan_says() {
    for (plan, hit, status) in [
        ("read_error_rate=1", vec![io::READ, io::COMPARE], Status::UNRECOVERED_READ_ERROR),
        ("read_error_blocks=15", vec![io::READ, io::COMPARE], Status::UNRECOVERED_READ_ERROR),
        ("read_error_blocks=16", vec![], Status::SUCCESS),
        (
            "write_error_rate=1",
            vec![io::WRITE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT],
            Status::WRITE_FAULT,
        ),
        ("write_error_blocks=8", vec![io::WRITE, io::WRITE_ZEROES], Status::WRITE_FAULT),
        ("flush_error_rate=1", vec![io::FLUSH], Status::INTERNAL_ERROR),
    ] {
        for profile in ["", ",profile=optane"] {
            let mut host = Host::new(&format!("size=1MiB,{plan}{profile}"));
            let mut queue = host.queue(1, 8, None);
            for op in OPS {
                let got = host.status(&mut queue, command(&host, op));
                let expected = if hit.contains(&op) { status } else { Status::SUCCESS };
                assert_eq!(got, expected, "{plan}{profile}: opcode {op:#x}");
            }
        }
    }
}

#[test]
fn what_failed_changed_nothing() {
    let mut host = Host::new("size=1MiB,write_error_blocks=8");
    let mut queue = host.queue(1, 8, None);
    host.put(DATA, &[7; 4096]);
    for op in [io::WRITE, io::WRITE_ZEROES] {
        assert_eq!(host.status(&mut queue, command(&host, op)), Status::WRITE_FAULT);
    }
    let read = transfer(io::READ, 8, 8, DATA + 0x1000);
    assert_eq!(host.status(&mut queue, read), Status::SUCCESS);
    assert_eq!(host.get(DATA + 0x1000, 4096), [0; 4096]);
}

#[test]
fn a_command_that_times_out_can_be_aborted_or_deleted() {
    for op in OPS {
        let mut host = Host::new("size=1MiB,timeout_after=2");
        let mut queue = host.queue(1, 8, None);
        for cid in 1..=3 {
            submit(&host, &mut queue, command(&host, op), cid);
        }
        settle(&host, 1);
        let mut done: Vec<u16> =
            std::iter::from_fn(|| host.pop(&mut queue)).map(|e| e.cid).collect();
        done.sort_unstable();
        assert_eq!(done, [1, 3], "opcode {op:#x}");
        assert_eq!(host.admin(Command::abort(1, 9)).result & 1, 1, "there is no command 9");
        assert_eq!(host.admin(Command::abort(1, 2)).result & 1, 0);
        settle(&host, 1);
        let entry = host.pop(&mut queue).unwrap();
        assert_eq!((entry.cid, entry.status), (2, Status::ABORT_REQUESTED));
        assert!(host.pop(&mut queue).is_none());
        host.delete(queue);
    }
    // Deleting the queue also ends its commands, and the queue can be created again.
    let mut host = Host::new("size=1MiB,timeout_rate=1");
    let mut queue = host.queue(1, 8, None);
    submit(&host, &mut queue, command(&host, io::WRITE), 1);
    settle(&host, 1);
    host.delete(queue);
    let mut queue = host.queue(1, 8, None);
    settle(&host, 1);
    assert!(host.pop(&mut queue).is_none());
}

#[test]
fn a_dropped_command_is_executed_and_no_abort_finds_it() {
    for op in OPS {
        let mut host = Host::new("size=1MiB,drop_after=1");
        let mut queue = host.queue(1, 8, None);
        host.put(DATA, &[7; 4096]);
        submit(&host, &mut queue, command(&host, op), 1);
        settle(&host, 1);
        assert!(host.pop(&mut queue).is_none(), "opcode {op:#x}");
        assert_eq!(host.admin(Command::abort(1, 1)).result & 1, 1, "opcode {op:#x}");
        let read = transfer(io::READ, 8, 8, DATA + 0x1000);
        assert_eq!(host.status(&mut queue, read), Status::SUCCESS);
        let expected = if op == io::WRITE { [7; 4096] } else { [0; 4096] };
        assert_eq!(host.get(DATA + 0x1000, 4096), expected, "opcode {op:#x}");
        host.delete(queue);
    }
}

#[test]
fn a_delayed_command_waits_and_says_until_when() {
    // The delay is far longer than any test takes.
    let mut host = Host::new("size=1MiB,delay_rate=1,delay_us=900000000");
    let mut queue = host.queue(1, 8, None);
    submit(&host, &mut queue, command(&host, io::WRITE), 1);
    let before = std::time::Instant::now();
    let stepped = host.device.step(1);
    assert!(stepped.due.unwrap() > before);
    settle(&host, 1);
    assert!(host.pop(&mut queue).is_none());
    assert_eq!(host.device.step_all().due, stepped.due);
    assert_eq!(host.admin(Command::abort(1, 1)).result & 1, 0);
    settle(&host, 1);
    assert_eq!(host.pop(&mut queue).unwrap().status, Status::ABORT_REQUESTED);
    assert_eq!(host.device.step(1).due, None);
}

#[test]
fn faults_can_come_and_go() {
    let mut host = Host::new("size=1MiB");
    let mut queue = host.queue(1, 8, None);
    let read = |host: &Host, queue: &mut Queue| host.status(queue, transfer(io::READ, 0, 8, DATA));
    assert_eq!(read(&host, &mut queue), Status::SUCCESS);
    host.device.set_faults("read_error_rate=1".parse().unwrap());
    assert_eq!(read(&host, &mut queue), Status::UNRECOVERED_READ_ERROR);
    host.device.set_faults("timeout_rate=1".parse().unwrap());
    submit(&host, &mut queue, transfer(io::READ, 0, 8, DATA), 1);
    settle(&host, 1);
    assert!(host.pop(&mut queue).is_none());
    host.device.set_faults(Plan::default());
    // Commands that waited still wait and can be aborted; new commands succeed.
    assert_eq!(read(&host, &mut queue), Status::SUCCESS);
    assert_eq!(host.admin(Command::abort(1, 1)).result & 1, 0);
    settle(&host, 1);
    assert_eq!(host.pop(&mut queue).unwrap().status, Status::ABORT_REQUESTED);
}

#[test]
fn a_corrupt_read_has_one_bit_wrong() {
    let mut host = Host::new("size=1MiB,corrupt_rate=1,seed=3");
    let mut queue = host.queue(1, 8, None);
    let mut places = Vec::new();
    for _ in 0..20 {
        assert_eq!(
            host.status(&mut queue, transfer(io::READ, 0, 8, DATA + 0x800)),
            Status::SUCCESS
        );
        let bytes = host.get(DATA + 0x800, 4096);
        assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        places.push(bytes.iter().position(|byte| *byte != 0).unwrap());
    }
    places.sort_unstable();
    places.dedup();
    assert!(places.len() > 15);
}

#[test]
fn a_fatal_controller_is_mended_by_a_reset() {
    for op in OPS {
        let mut host = Host::new("size=1MiB,fatal_after=2");
        let mut queue = host.queue(1, 8, None);
        for cid in 1..=3 {
            submit(&host, &mut queue, command(&host, op), cid);
        }
        settle(&host, 1);
        while host.pop(&mut queue).is_some_and(|entry| entry.cid == 1) {}
        assert_eq!(host.read32(CSTS), CSTS_READY | CSTS_FATAL, "opcode {op:#x}");
        settle(&host, 1);
        assert!(host.pop(&mut queue).is_none());
        host.disable();
        host.enable();
        let mut queue = host.queue(1, 8, None);
        assert_eq!(host.status(&mut queue, command(&host, op)), Status::SUCCESS);
    }
}

#[test]
fn a_removed_drive_is_all_ones_until_it_is_plugged_in_again() {
    for (plan, op) in
        ["remove_after=2", "power_cut_after=2"].iter().flat_map(|plan| OPS.map(|op| (plan, op)))
    {
        let mut host = Host::new(&format!("size=1MiB,{plan}"));
        let mut queue = host.queue(1, 8, None);
        host.put(DATA, &[7; 4096]);
        assert_eq!(host.status(&mut queue, command(&host, io::WRITE)), Status::SUCCESS);
        submit(&host, &mut queue, command(&host, op), 2);
        settle(&host, 1);
        settle(&host, 0);
        assert_eq!(host.read32(CSTS), u32::MAX, "{plan}, opcode {op:#x}");
        assert!(host.pop(&mut queue).is_none());
        host.device.insert();
        assert_eq!(host.read32(CSTS), 0);
        host.disable();
        host.enable();
        let mut queue = host.queue(1, 8, None);
        let read = transfer(io::READ, 8, 8, DATA + 0x1000);
        assert_eq!(host.status(&mut queue, read), Status::SUCCESS);
        assert_eq!(host.get(DATA + 0x1000, 4096), [7; 4096], "there is no volatile cache");
    }
}

#[test]
fn a_power_cut_takes_what_was_not_flushed() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..40 {
        // The commands are two writes of one sector each, a flush, eight writes, and the command
        // that meets the cut.
        let mut host = Host::new(&format!("size=1MiB,cache=on,power_cut_after=12,seed={seed}"));
        let mut queue = host.queue(1, 16, None);
        host.put(DATA, &[1; 4096]);
        let mut run = |command| assert_eq!(host.status(&mut queue, command), Status::SUCCESS);
        run(transfer(io::WRITE, 0, 8, DATA));
        run(transfer(io::WRITE, 8, 8, DATA));
        run(Command::new(io::FLUSH, 1));
        host.put(DATA, &[2; 4096]);
        let mut run = |command| assert_eq!(host.status(&mut queue, command), Status::SUCCESS);
        for block in 0..7 {
            run(transfer(io::WRITE, block, 1, DATA));
        }
        let mut forced = transfer(io::WRITE, 15, 1, DATA);
        forced.0[12] |= qpair_nvme_wire::command::FORCE_UNIT_ACCESS;
        run(forced);
        submit(&host, &mut queue, transfer(io::WRITE, 7, 1, DATA), 9);
        settle(&host, 1);
        assert_eq!(host.read32(CSTS), u32::MAX);
        host.device.insert();
        host.disable();
        host.enable();
        let mut queue = host.queue(1, 16, None);
        for block in 0..2 {
            let read = transfer(io::READ, block * 8, 8, DATA + 0x1000 + block * 0x1000);
            assert_eq!(host.status(&mut queue, read), Status::SUCCESS);
        }
        let bytes = host.get(DATA + 0x1000, 8192);
        let values: Vec<u8> = bytes.chunks(512).map(|sector| sector[0]).collect();
        for (sector, value) in bytes.chunks(512).zip(&values) {
            assert!(sector.iter().all(|byte| byte == value), "a sector is torn");
        }
        for value in &values[..7] {
            match value {
                1 => lost += 1,
                2 => kept += 1,
                _ => panic!("{values:?}"),
            }
        }
        assert_eq!(values[7..15], [1; 8], "nobody wrote these again");
        assert_eq!(values[15], 2, "this was forced");
    }
    assert!(lost > 70 && kept > 70, "{lost} lost, {kept} kept");
}

#[test]
fn a_profile_changes_no_data() {
    for profile in ["tlc", "qlc", "optane", "qlc,slc_cache=0,dram_cache=0", "tlc,suspend_us=5"] {
        let mut host = Host::new(&format!("size=8MiB,profile={profile}"));
        let mut queue = host.queue(1, 64, None);
        let mut model = [0_u8; 64];
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..20 {
            // Sixteen commands run at a time, on blocks that do not overlap.
            let mut expected = Vec::new();
            for slot in 0..16_u64 {
                let block = slot * 4 + rng.u64(0..4);
                let at = DATA + slot * 0x1000;
                let op = [io::READ, io::WRITE, io::WRITE_ZEROES][rng.usize(0..3)];
                let value = rng.u8(1..);
                match op {
                    io::WRITE => {
                        host.put(at, &[value; 512]);
                        model[block as usize] = value;
                    }
                    io::WRITE_ZEROES => model[block as usize] = 0,
                    _ => expected.push((at, model[block as usize])),
                }
                submit(&host, &mut queue, transfer(op, block, 1, at), slot as u16);
            }
            let mut done = 0;
            while done < 16 {
                host.device.step(1);
                while let Some(entry) = host.pop(&mut queue) {
                    assert_eq!(entry.status, Status::SUCCESS);
                    done += 1;
                }
            }
            for (at, value) in expected {
                assert_eq!(host.get(at, 512), [value; 512]);
            }
        }
    }
}

#[test]
fn what_is_deallocated_reaches_the_flash() {
    let mut host = Host::new(
        "size=8MiB,profile=tlc,dies=1,channels=1,over_provisioning=0,controller_us=0,program_us=1,erase_us=1",
    );
    let mut queue = host.queue(1, 64, None);
    let write = |host: &Host, queue: &mut Queue, block: u64| {
        assert_eq!(host.status(queue, transfer(io::WRITE, block * 8, 8, DATA)), Status::SUCCESS);
    };
    (0..2048).for_each(|block| write(&host, &mut queue, block));
    let mut rng = fastrand::Rng::with_seed(1);
    let mut amplification = |host: &Host, queue: &mut Queue| {
        let before = host.device.flash().counts();
        (0..4096).for_each(|_| write(host, queue, rng.u64(0..2048)));
        host.device.flash().counts().write_amplification(&before)
    };
    let full = amplification(&host, &mut queue);
    host.put(DATA + 0x4000, &Range { attributes: 0, blocks: 2048 * 8, first_block: 0 }.encode());
    let mut deallocate = Command::new(io::DATASET_MANAGEMENT, 1);
    deallocate.set_prps(DATA + 0x4000, 0);
    deallocate.0[11] = DEALLOCATE;
    assert_eq!(host.status(&mut queue, deallocate), Status::SUCCESS);
    let before = host.device.flash().counts();
    (0..1024).for_each(|block| write(&host, &mut queue, block));
    let empty = host.device.flash().counts().write_amplification(&before);
    assert!(full > 1.5 && empty < 1.05, "{full} {empty}");
}

#[test]
fn what_waits_is_aborted_or_told_of_by_deletion() {
    let mut host = Host::new("size=1MiB,timeout_rate=1");
    let mut queue = host.queue(1, 8, None);
    for cid in 0..5 {
        let mut command = transfer(io::READ, 0, 1, DATA);
        command.set_cid(cid);
        host.push(&mut queue, &command);
    }
    host.ring(&queue);
    let stepped = host.device.step(1);
    assert!(stepped.progress && stepped.due.is_none() && host.peek(&queue).is_none());
    assert_eq!(host.admin(Command::abort(1, 3)).result, 0);
    assert_eq!(host.admin(Command::abort(1, 7)).result, 1);
    assert_eq!(host.admin(Command::abort(2, 3)).result, 1);
    host.device.step(1);
    let entry = host.pop(&mut queue).unwrap();
    assert_eq!((entry.cid, entry.status), (3, Status::ABORT_REQUESTED));
    assert!(host.pop(&mut queue).is_none());
    let delete = Command::delete_queue(admin::DELETE_SQ, 1);
    assert_eq!(host.admin_status(delete), Status::SUCCESS);
    let mut cids: Vec<_> = std::iter::from_fn(|| host.pop(&mut queue))
        .map(|entry| {
            assert_eq!(entry.status, Status::ABORTED_SQ_DELETED);
            entry.cid
        })
        .collect();
    cids.sort_unstable();
    assert_eq!(cids, [0, 1, 2, 4]);
}

#[test]
fn commands_wait_until_they_are_due() {
    let mut host = Host::new("size=1MiB,profile=optane");
    let mut queue = host.queue(1, 8, None);
    host.push(&mut queue, &transfer(io::READ, 0, 8, DATA));
    host.ring(&queue);
    let due = host.device.step(1).due.expect("something takes time");
    while std::time::Instant::now() < due {
        host.device.step(1);
        std::hint::spin_loop();
    }
    host.device.step(1);
    assert_eq!(host.pop(&mut queue).map(|entry| entry.status), Some(Status::SUCCESS));
}

#[test]
fn faults_by_number() {
    let mut host = Host::new("size=1MiB,fatal_after=3");
    let mut queue = host.queue(1, 8, None);
    assert_eq!(host.status(&mut queue, transfer(io::READ, 0, 1, DATA)), Status::SUCCESS);
    assert_eq!(host.status(&mut queue, transfer(io::READ, 0, 1, DATA)), Status::SUCCESS);
    host.push(&mut queue, &transfer(io::READ, 0, 1, DATA));
    host.ring(&queue);
    host.device.step_all();
    assert!(host.peek(&queue).is_none());
    assert_eq!(host.read32(CSTS), CSTS_READY | CSTS_FATAL);
    host.disable();
    host.enable();

    let mut host = Host::new("size=1MiB,corrupt_rate=1,seed=3");
    let mut queue = host.queue(1, 8, None);
    assert_eq!(host.status(&mut queue, transfer(io::READ, 0, 8, DATA)), Status::SUCCESS);
    let ones: u32 = host.get(DATA, 4096).iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(ones, 1, "one bit of zeroes");

    let mut host = Host::new("size=1MiB,power_cut_after=2,cache=on");
    let mut queue = host.queue(1, 8, None);
    assert_eq!(host.status(&mut queue, transfer(io::WRITE, 0, 8, DATA)), Status::SUCCESS);
    host.push(&mut queue, &transfer(io::READ, 0, 1, DATA));
    host.ring(&queue);
    host.device.step_all();
    assert_eq!(host.read32(CSTS), u32::MAX);
}
