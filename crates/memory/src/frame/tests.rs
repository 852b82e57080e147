use super::*;

fn table() -> FrameTable {
    FrameTable::new(512, 4, ArenaOptions::ordinary_pages()).unwrap()
}

/// A page that a panic left half changed must not be sealed and written at the next eviction.
#[test]
fn a_page_that_a_panic_left_half_changed_stays_latched() {
    let table = table();
    let frame = FrameIndex(3);
    let before = table.optimistic(frame).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut guard = table.try_exclusive(frame).unwrap();
        guard.bytes_mut().store_u64(8, 42);
        panic!("planted");
    }));
    assert!(panicked.is_err());
    assert!(!before.validate());
    assert_eq!(table.optimistic(frame).err(), Some(Blocked::Contended));
    assert!(table.try_exclusive(frame).is_err());
    // A latch that is taken and released during a panic must be released.
    struct Uses<'a>(&'a FrameTable);
    impl Drop for Uses<'_> {
        fn drop(&mut self) {
            drop(self.0.try_exclusive(FrameIndex(1)).unwrap());
        }
    }
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _uses = Uses(&table);
        panic!("planted");
    }));
    assert!(panicked.is_err());
    assert!(table.try_exclusive(FrameIndex(1)).is_ok());
}

#[test]
fn a_read_fills_behind_a_closed_latch() {
    let table = table();
    let frame = FrameIndex(2);
    let mut buffer = table.try_exclusive(frame).unwrap().begin_read();
    assert_eq!(table.optimistic(frame).err(), Some(Blocked::InFlight));
    buffer.copy_from(0, b"from the device");
    let guard = table.end_read(buffer);
    assert_eq!(&guard.as_slice()[..15], b"from the device");
    assert!(!guard.end_read());
    let page = table.optimistic(frame).unwrap();
    assert_eq!(page.bytes().load_u8(0), b'f');
    assert!(page.validate());
}

#[test]
fn a_write_back_lets_readers_in_and_writers_wait() {
    let table = table();
    let frame = FrameIndex(0);
    let mut guard = table.try_exclusive(frame).unwrap();
    guard.bytes_mut().store_u64(8, 42);
    let buffer = guard.begin_write();
    let page = table.optimistic(frame).unwrap();
    assert_eq!(page.bytes().load_u64(8), 42);
    assert_eq!(page.upgrade().err(), Some(Blocked::InFlight));
    assert!(table.add_waiter(frame));
    assert_eq!(table.end_write(buffer), (frame, true));
    assert!(page.validate());
    drop(page.upgrade().unwrap());
    assert!(!page.validate());
}

#[test]
#[should_panic(expected = "another arena")]
fn a_foreign_buffer_is_refused() {
    let other = Arena::new(512, 1, ArenaOptions::default()).unwrap();
    let _ = table().end_read(other.lease().unwrap());
}
