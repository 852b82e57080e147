//! Invalid rings, and rings of an earlier target process.

use super::*;

/// A head that comes twice, an index too far ahead, or a chain without a response makes the host
/// give the ring up. Other rings continue.
#[test]
fn rings_that_make_no_sense_are_given_up() {
    type Damage = fn(&mut Host);
    let damages: [Damage; 5] = [
        |host| {
            let at = host.requests[0].areas().available.at + 2;
            host.bytes().store_u16(at, 100);
        },
        |host| host.requests[0].offer(SIZE),
        |host| {
            host.requests[0].describe(6, COMMANDS_AT, 51, NEXT, 6);
            host.requests[0].offer(6);
        },
        |host| {
            host.requests[0].describe(6, COMMANDS_AT, 51, NEXT, 7);
            host.requests[0].describe(7, RESPONSES_AT, 107, WRITE, 0);
            host.requests[0].offer(6);
        },
        |host| {
            host.requests[0].describe(6, COMMANDS_AT, 51, NEXT, 7);
            host.requests[0].describe(7, MEMORY_BYTES - 107, 108, WRITE, 0);
            host.requests[0].offer(6);
        },
    ];
    for damage in damages {
        let mut host = Host::new(&[ram()]);
        let mut queues = [0, 1].map(|which| host.requests[which].open(&host.controller));
        let mut control = host.control.open(&host.controller);
        damage(&mut host);
        queues[0].turn();
        host.offer(0, 9, 0, read(0, 1), (DATA_AT, 512), false);
        assert!(!queues[0].turn() && host.ended(0).is_none());
        host.offer(1, 9, 0, read(0, 1), (DATA_AT, 512), false);
        queues[1].turn();
        host.ended(1).unwrap().1.is_good(0);
        // A task does not wait for the ring that was given up.
        host.offer_task(0, Task { what: task::LUN_RESET, address: address(0, 0), id: 0 });
        control.turn();
        for _ in 0..3 {
            queues.iter_mut().for_each(|queue| {
                queue.turn();
            });
        }
        control.turn();
        assert_eq!(host.answer(), Some(response::OK));
        let [broken, whole] = queues.map(|queue| queue.stop().is_broken);
        assert!(broken && !whole);
    }
}

/// Commands that were under way when a target process ended are executed by the next one, once.
#[test]
fn commands_survive_the_target() {
    let mut host = Host::new(&[ram()]);
    let region = Mapping::new_file(inflight_bytes(SIZE)).unwrap().0;
    let part = || Inflight::new(region.clone(), 0, SIZE);
    host.put(DATA_AT, &[7; 512]);
    host.offer(0, 3, 0, write(5, 1), (DATA_AT, 512), true);
    // The target process ended between taking and answering, and only its mark is left.
    let mut its = part().unwrap();
    assert!(its.recover(0).is_empty());
    its.take(3);
    let options = RingOptions { inflight: part(), ..host.requests[0].options() };
    let mut queue = host.requests[0].open_with(&host.controller, options);
    host.finish(&mut queue).1.is_good(0);
    let found = host.ask(&mut queue, read(5, 1), 512);
    assert_eq!(found, [7; 512]);
    assert_eq!(queue.stop().taken, 2);
}

/// Queues neither panic nor touch memory other than the guest's, and they end, whatever bytes
/// descriptors, commands and tasks have.
#[test]
fn rings_of_random_bytes() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut host = Host::new(&[ram(), ram()]);
        let mut queues = [
            host.control.open(&host.controller),
            host.events.open(&host.controller),
            host.requests[0].open(&host.controller),
            host.requests[1].open(&host.controller),
        ];
        for _ in 0..50 {
            for at in (COMMANDS_AT..DATA_AT).step_by(8) {
                let word = if random.bool() { random.u64(..) } else { random.u64(0..16) };
                host.bytes().store_u64(at as usize, word);
            }
            // Half of the slots have commands and tasks of existing targets.
            for slot in (0..32).filter(|slot| slot % 2 == 0) {
                host.put(COMMANDS_AT + 64 * slot, &address(random.u8(0..3), 0));
                let known = [0x00, 0x12, 0x28, 0x2A, 0x42, 0x88, 0x8A, 0x93, 0x9E, 0x55];
                let code = known[random.usize(..known.len())];
                host.put(COMMANDS_AT + 64 * slot + 19, &[code]);
                host.put(TASKS_AT + 32 * slot, &[0, 0, 0, 0, random.u8(0..9), 0, 0, 0]);
                host.put(TASKS_AT + 32 * slot + 8, &address(random.u8(0..3), 0));
            }
            let [first, second] = &mut host.requests;
            let rings = [&mut host.control, &mut host.events, first, second];
            for ring in rings {
                for index in 0..SIZE {
                    let address = match random.u8(0..4) {
                        0 => COMMANDS_AT + 64 * random.u64(0..32),
                        1 => TASKS_AT + 32 * random.u64(0..32),
                        _ => random.u64(0..MEMORY_BYTES + 4096),
                    };
                    let len = random.u32(0..0x3000) >> random.u32(0..14);
                    let flags = random.u16(0..8) & if random.bool() { 3 } else { 7 };
                    ring.describe(index, address, len, flags, random.u16(0..SIZE + 1));
                }
                for _ in 0..random.usize(0..4) {
                    ring.offer(random.u16(0..SIZE));
                }
            }
            queues.iter_mut().for_each(|queue| {
                queue.turn();
            });
        }
        for queue in queues {
            queue.stop();
        }
    }
}
