//! Targets that come and go.

use super::*;

#[test]
fn targets_come_and_go_while_they_are_used() {
    let gate = Gate::new();
    let device: Arc<dyn BlockDevice> = gate.clone();
    let mut host = Host::new(&[device]);
    let mut queue = host.start();
    let mut events = host.events.open(&host.controller);
    (0..4).for_each(|head| host.expect_event(head));
    let controller = host.controller.clone();
    let disk = Disk::new("late", ram());
    assert_eq!(
        host.run_on(&mut queue, 5, Scsi::TestUnitReady, none(), false).response,
        response::BAD_TARGET
    );
    assert_eq!(controller.add(Some(5), &disk).unwrap(), 5);
    for wrong in [Some(5), Some(8)] {
        assert!(controller.add(wrong, &disk).is_err(), "{wrong:?}");
    }
    events.turn();
    let plugged = |target, reason| {
        Some(Event { kind: event::TRANSPORT_RESET, address: address(target, 0), reason })
    };
    assert_eq!(host.event(), plugged(5, event::RESCAN));
    // The next command finds the new target.
    let ready = host.run_on(&mut queue, 5, Scsi::TestUnitReady, none(), false);
    ready.checks(Key::UnitAttention, Code::POWER_ON);
    host.run_on(&mut queue, 5, write(0, 1), (DATA_AT, 512), true).is_good(0);

    // The target leaves when its command has ended; the other target does not wait for that.
    gate.shut(true);
    host.offer(0, 6, 0, read(0, 1), (DATA_AT, 512), false);
    queue.turn();
    let removal = std::thread::spawn(move || controller.remove(0));
    loop {
        events.turn();
        match host.event() {
            None => std::thread::yield_now(),
            told => break assert_eq!(told, plugged(0, event::REMOVED)),
        }
    }
    let ended = host.run_on(&mut queue, 0, Scsi::TestUnitReady, none(), false);
    assert_eq!(ended.response, response::BAD_TARGET);
    host.run_on(&mut queue, 5, read(0, 1), (DATA_AT, 512), false).is_good(0);
    assert!(!removal.is_finished(), "its command is under way");
    gate.shut(false);
    let (6, ended) = host.finish(&mut queue) else { panic!("another one") };
    ended.is_good(0);
    while !removal.is_finished() {
        queue.turn();
    }
    assert_eq!(removal.join().unwrap().unwrap().name, "disk-0");
    assert!(host.controller.remove(0).is_err());
    // The disk gets the first free number.
    assert_eq!(host.controller.add(None, &Disk::new("new", ram())).unwrap(), 0);
    let ready = host.run_on(&mut queue, 0, Scsi::TestUnitReady, none(), false);
    ready.checks(Key::UnitAttention, Code::POWER_ON);

    // There are more events than memory for them: the guest is told that events were lost.
    let controller = &host.controller;
    for _ in 0..10 {
        assert_eq!(controller.add(Some(7), &disk).unwrap(), 7);
        let queue = &mut queue;
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| controller.remove(7));
            while !removal.is_finished() {
                queue.turn();
            }
            removal.join().unwrap().unwrap();
        });
    }
    let mut told = Vec::new();
    for head in 0..16 {
        events.turn();
        told.extend(std::iter::from_fn(|| host.event()));
        host.expect_event(head % 4);
    }
    assert!(told.len() < 21 && told.iter().any(|it| it.kind & event::MISSED != 0), "{told:?}");
}
