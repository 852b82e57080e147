use std::sync::Arc;

use qpair_memory::Mapping;

use super::*;

const SIZE: u16 = 8;

fn memory() -> (Arc<Mapping>, Layout) {
    let layout = Layout::new(SIZE).unwrap();
    (Mapping::new_file(64 << 10).unwrap().0, layout)
}

#[test]
fn areas_lie_apart() {
    for shift in 0..=15 {
        let layout = Layout::new(1 << shift).unwrap();
        assert!(layout.available_at() >= layout.descriptors_bytes());
        assert!(layout.used_at() >= layout.available_at() + layout.available_bytes());
        assert!(layout.bytes() >= layout.used_at() + layout.used_bytes());
    }
    assert_eq!([0, 3, 32769, 65535].map(Layout::new), [None; 4]);
}

/// Checks both sides with wrapping indexes, full rings and random batches: every request must come
/// back once.
#[test]
fn what_is_offered_comes_back_once() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (memory, layout) = memory();
        // Place the areas at odd addresses, as guests do.
        let areas = Areas {
            descriptors: Area::new(memory.bytes(), 0),
            available: Area::new(memory.bytes(), 0x1002),
            used: Area::new(memory.bytes(), 0x2004),
        };
        let (mut driver, mut device) = (DriverRing::new(layout), DeviceRing::new(layout));
        driver.be_quiet(areas);
        let mut free: Vec<u16> = (0..SIZE).collect();
        let mut held: Vec<u16> = Vec::new();
        let mut came = 0u32;
        while came < 80_000 {
            for _ in 0..random.usize(..=free.len()) {
                let head = free.pop().unwrap();
                driver.offer(areas, head);
            }
            if driver.has_news() {
                assert!(driver.publish(areas), "the device has not asked for quiet");
            }
            while let Some(head) = device.take(areas).unwrap() {
                assert!(!held.contains(&head) && !free.contains(&head), "twice");
                held.push(head);
            }
            random.shuffle(&mut held);
            for _ in 0..random.usize(..=held.len()) {
                let head = held.pop().unwrap();
                device.give(areas, head, u32::from(head) + 7);
            }
            let is_called = device.publish(areas) || device.ask(areas);
            assert!(!is_called, "the driver has asked for quiet");
            while let Some(used) = driver.take(areas).unwrap() {
                assert_eq!(used.len, used.id + 7);
                free.push(used.id as u16);
                came += 1;
            }
            assert_eq!(free.len() + held.len(), SIZE.into());
        }
    }
}

/// Checks that, with the event index, each side is notified when the index that it waits for is
/// passed, and at no other time.
#[test]
fn each_side_hears_of_what_it_waits_for() {
    let (memory, layout) = memory();
    let areas = layout.areas(memory.bytes());
    let mut driver = DriverRing::with_event_index(layout, true);
    let mut device = DeviceRing::resume(layout, areas, 0, true);
    let offer = |driver: &mut DriverRing| {
        driver.offer(areas, 0);
        driver.publish(areas)
    };
    // Go once around all indexes, and a bit further.
    for round in 0..40_000 {
        assert!(offer(&mut driver), "the device waits for the first");
        assert!(!offer(&mut driver) && !offer(&mut driver), "it has not looked yet");
        driver.be_quiet(areas);
        for answered in 0..3 {
            let head = device.take(areas).unwrap().unwrap();
            if answered == 2 {
                assert!(!driver.listen(areas));
            }
            device.give(areas, head, 0);
            let called = device.publish(areas) || device.ask(areas);
            // A new device does not know whether its driver was notified before.
            let is_first = (round, answered) == (0, 0);
            assert_eq!(called, is_first || answered == 2, "{round} {answered}");
            driver.take(areas).unwrap().unwrap();
        }
        assert!(!device.listen(areas));
    }
}

/// Checks that a driver that begins to wait after the device has published is called when the
/// device asks, and that no question is left then.
#[test]
fn a_driver_that_begins_to_wait_late_is_called() {
    for event_index in [false, true] {
        let (memory, layout) = memory();
        let areas = layout.areas(memory.bytes());
        let mut driver = DriverRing::with_event_index(layout, event_index);
        let mut device = DeviceRing::resume(layout, areas, 0, event_index);
        driver.be_quiet(areas);
        let mut serve = |driver: &mut DriverRing| {
            driver.offer(areas, 0);
            driver.publish(areas);
            let head = device.take(areas).unwrap().unwrap();
            device.give(areas, head, 0);
            let is_called = device.publish(areas);
            assert_eq!(device.is_owing(), !is_called);
            // What a driver that waits from now on would set, seen before the index was.
            driver.listen(areas);
            let is_asked = device.is_owing() && device.ask(areas);
            assert!(!device.is_owing());
            driver.be_quiet(areas);
            driver.take(areas).unwrap().unwrap();
            (is_called, is_asked)
        };
        // The first question of a device with the index is always answered by a call.
        assert_eq!(serve(&mut driver), (event_index, !event_index));
        assert_eq!(serve(&mut driver), (false, true));
    }
}

#[test]
fn a_device_that_uses_more_than_it_was_given_is_broken() {
    let (memory, layout) = memory();
    let areas = layout.areas(memory.bytes());
    let mut driver = DriverRing::new(layout);
    let say = |index| areas.used.bytes.store_u16(areas.used.at + INDEX_AT, index);
    say(1);
    assert_eq!(driver.take(areas), Err(Broken), "nothing was offered");
    driver.offer(areas, 3);
    assert_eq!(driver.take(areas), Err(Broken), "offered, and not published");
    driver.publish(areas);
    assert_eq!(driver.take(areas), Ok(Some(Used { id: 0, len: 0 })));
    for index in [2, 0xFFFF, 0, 0x8001] {
        say(index);
        assert_eq!(driver.take(areas), Err(Broken), "{index}");
    }
    say(1);
    assert_eq!(driver.take(areas), Ok(None));
}

#[test]
fn a_driver_that_offers_more_than_there_is_room_for_is_broken() {
    let (memory, layout) = memory();
    let areas = layout.areas(memory.bytes());
    let mut device = DeviceRing::new(layout);
    let (bytes, at) = (areas.available.bytes, areas.available.at);
    bytes.store_u16(at + INDEX_AT, SIZE + 1);
    assert_eq!(device.take(areas), Err(Broken));
    bytes.store_u16(at + INDEX_AT, 1);
    bytes.store_u16(at + ENTRIES_AT, SIZE);
    assert_eq!(device.take(areas), Err(Broken), "a head outside of the table");
    bytes.store_u16(at + ENTRIES_AT, SIZE - 1);
    assert_eq!(device.take(areas), Ok(Some(SIZE - 1)));
    bytes.store_u16(at + INDEX_AT, 0);
    assert_eq!(device.take(areas), Err(Broken), "an index that goes back");
}

#[test]
fn chains_and_tables() {
    let (memory, layout) = memory();
    let descriptors = layout.areas(memory.bytes()).descriptors;
    let table = 0x4000usize;
    let walked = || {
        let mut segments = Vec::new();
        let read = |address: u64, into: &mut [u8]| {
            let is_open = address == table as u64 && into.len() <= 4096;
            if is_open {
                memory.bytes().copy_to(table, into);
            }
            is_open
        };
        walk(layout, descriptors, 2, read, &mut segments).map(|()| segments)
    };
    let set = |index, address, len, flags, next| {
        Descriptor { address, len, flags, next }.store(descriptors, index);
    };
    let segment = |address, len, is_written| Segment { address, len, is_written };
    let two = Ok(vec![segment(0x10, 51, false), segment(0x20, 108, true)]);
    set(2, 0x10, 51, NEXT, 7);
    set(7, 0x20, 108, WRITE, 0);
    assert_eq!(walked(), two);
    set(7, 0x20, 108, WRITE | NEXT, 8);
    assert_eq!(walked(), Err(Broken), "a link outside of the table");
    set(7, 0x20, 0, NEXT, 2);
    assert_eq!(walked(), Err(Broken), "a circle");
    set(2, 0x10, 51, WRITE | NEXT, 7);
    set(7, 0x20, 108, 0, 0);
    assert_eq!(walked(), Err(Broken), "read after written");
    set(2, u64::MAX, 2, 0, 0);
    assert_eq!(walked(), Err(Broken), "past the end of all addresses");

    let inner = Area::new(memory.bytes(), table);
    let put = |index, address, len, flags, next| {
        Descriptor { address, len, flags, next }.store(inner, index);
    };
    put(0, 0x10, 51, NEXT, 2);
    put(2, 0x20, 108, WRITE, 0);
    set(2, table as u64, 48, INDIRECT, 0);
    assert_eq!(walked(), two);
    for (len, what) in [(32, "a link outside"), (40, "a part of an entry"), (0, "no entry")] {
        set(2, table as u64, len, INDIRECT, 0);
        assert_eq!(walked(), Err(Broken), "{what}");
    }
    set(2, table as u64, 48, INDIRECT | NEXT, 0);
    assert_eq!(walked(), Err(Broken), "a table within a chain");
    set(2, 0x9000, 48, INDIRECT, 0);
    assert_eq!(walked(), Err(Broken), "a table that is not open");
    set(2, table as u64, 48, INDIRECT, 0);
    put(2, table as u64, 48, INDIRECT, 0);
    assert_eq!(walked(), Err(Broken), "a table in a table");
    put(2, 0x20, 0, NEXT, 0);
    assert_eq!(walked(), Err(Broken), "a circle in a table");
    // Direct descriptors may come before a table.
    put(0, 0x20, 108, WRITE, 0);
    set(2, 0x10, 51, NEXT, 4);
    set(4, table as u64, 16, INDIRECT, 0);
    assert_eq!(walked(), two);
}
