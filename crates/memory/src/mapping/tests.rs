use super::*;

#[test]
fn two_mappings_see_one_file() {
    let (one, file) = Mapping::new_file(3 << 20).unwrap();
    let two = Mapping::of_file(file.as_fd(), 8200, 4096, true).unwrap();
    one.bytes().store_u32(8200, 7);
    assert_eq!(two.bytes().load_u32(0), 7);
    two.bytes().copy_from(4, b"seven");
    let mut out = [0; 5];
    one.bytes().copy_to(8204, &mut out);
    assert_eq!(&out, b"seven");
}

#[test]
fn a_file_that_is_handed_out_keeps_its_size() {
    let (_mapping, file) = Mapping::new_file(8192).unwrap();
    let options = crate::ArenaOptions { shared: true, ..crate::ArenaOptions::ordinary_pages() };
    let arena = crate::Arena::new(4096, 4, options).unwrap();
    for (file, len) in [(file.as_fd(), 8192), (arena.file().unwrap(), arena.mapped_bytes() as u64)]
    {
        use rustix::fs::{FallocateFlags, fallocate, ftruncate};
        assert!(ftruncate(file, 0).is_err() && ftruncate(file, len << 10).is_err());
        // Memory beyond the end, which the file's size does not show.
        for flags in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
            assert!(fallocate(file, flags, len, 1 << 20).is_err(), "{flags:?}");
        }
        assert!(rustix::fs::fcntl_add_seals(file, SealFlags::WRITE).is_err());
        assert_eq!(rustix::fs::fstat(file).unwrap().st_size as u64, len);
    }
}

#[test]
fn a_renewed_mapping_has_nothing_of_the_old_file() {
    for len in [8192, 3 << 20] {
        let (mapping, old) = Mapping::new_file(len).unwrap();
        let stranger = Mapping::of_file(old.as_fd(), 0, len, true).unwrap();
        stranger.bytes().store_u32(4096, 7);
        assert_eq!(mapping.bytes().load_u32(4096), 7);
        let new = mapping.renew().unwrap();
        assert_eq!(mapping.bytes().load_u32(4096), 0);
        stranger.bytes().store_u32(4096, 8);
        assert_eq!(mapping.bytes().load_u32(4096), 0);
        let guest = Mapping::of_file(new.as_fd(), 4096, 4096, true).unwrap();
        guest.bytes().store_u32(0, 9);
        assert_eq!((mapping.bytes().load_u32(4096), mapping.bytes().len()), (9, len));
        assert!(stranger.renew().is_err());
    }
}

#[test]
fn released_memory_is_zero_again() {
    let memory = Mapping::new_anonymous(3 << 20).unwrap();
    let bytes = memory.bytes();
    assert_eq!(bytes.len(), 3 << 20);
    for at in (0..3 << 20).step_by(1024) {
        bytes.store_u8(at, 1);
    }
    memory.release(4096, 2 << 20).unwrap();
    let sum = |from: usize, to| (from..to).map(|at| u32::from(bytes.load_u8(at))).sum::<u32>();
    assert_eq!((sum(0, 4096), sum(4096, 4096 + (2 << 20))), (4, 0));
    assert_eq!(sum(4096 + (2 << 20), 3 << 20), 1020);
    for (offset, len) in [(0, 4 << 20), (1, 4096), (0, 100), (usize::MAX, 4096)] {
        assert!(memory.release(offset, len).is_err());
    }
    assert!(Mapping::new_file(4096).unwrap().0.release(0, 4096).is_err(), "others see it");
    assert!(Mapping::new_anonymous(0).is_err() && Mapping::new_anonymous(usize::MAX).is_err());
}

#[test]
fn refuses_what_cannot_be_mapped() {
    let (_, file) = Mapping::new_file(4096).unwrap();
    for (offset, len) in [(0, 0), (4, 8), (u64::MAX - 7, 8), (0, usize::MAX), (8, usize::MAX - 8)] {
        assert!(Mapping::of_file(file.as_fd(), offset, len, true).is_err(), "{offset} {len}");
    }
}

#[test]
fn only_a_file_that_nobody_can_shrink_is_passed_on() {
    let (_, sealed) = Mapping::new_file(16384).unwrap();
    let mapping = Mapping::of_lasting_file(sealed.as_fd(), 8192, 4096).unwrap();
    let (file, offset_bytes) = mapping.file().unwrap();
    let other = Mapping::of_memory_file(file, offset_bytes, 4096, false).unwrap();
    mapping.bytes().store_u64(8, 7);
    assert_eq!((other.bytes().load_u64(8), other.file().is_none()), (7, true));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let open = rustix::fs::memfd_create("open", flags).unwrap();
    rustix::fs::ftruncate(&open, 4096).unwrap();
    assert!(Mapping::of_lasting_file(open.as_fd(), 0, 4096).unwrap().file().is_none());
}

#[test]
fn a_read_only_mapping_takes_no_stores() {
    let (one, file) = Mapping::new_file(4096).unwrap();
    let two = Mapping::of_file(file.as_fd(), 0, 4096, false).unwrap();
    two.bytes().store_u64(0, 1);
    two.bytes().copy_from(0, &[1; 64]);
    two.bytes().zero(0, 4096);
    assert_eq!(one.bytes().load_u64(0), 0);
}

/// A regression: a mapping of unavailable huge pages failed while it replaced another one. The
/// cleanup then unmapped memory that another thread had mapped in that place.
#[test]
fn a_mapping_that_fails_takes_nothing_of_others() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let options = crate::ArenaOptions::ordinary_pages();
                    let arena = crate::Arena::new(256 << 10, 1, options).unwrap();
                    let mut buffer = arena.lease().unwrap();
                    buffer.copy_from(128 << 10, &[7; 4096]);
                    assert_eq!(buffer.as_slice()[128 << 10], 7);
                }
            });
        }
        for _ in 0..8000 {
            // If no huge pages are reserved, this fails.
            let _ = crate::Arena::new(4096, 1, crate::ArenaOptions::shared_huge_pages());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
