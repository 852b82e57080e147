//! Logs with changed or missing bytes: a prefix is read, and missing records are noticed if
//! possible.

use super::*;

#[test]
fn every_cut_leaves_a_prefix_with_all_whole_chunks() {
    let written = Written::new(11, 24);
    let bytes = &written.disk.bytes;
    assert!(written.writes.len() > 8 && bytes.len() > 3 * 2560);
    for cut in 0..=bytes.len() {
        let (found, end) = written.read(&bytes[..cut]);
        let whole = written
            .writes
            .iter()
            .take_while(|write| write.offset_bytes + u64::from(write.len_bytes) <= cut as u64)
            .last()
            .map_or(0, |write| write.end_lsn);
        assert!(found >= written.before(whole), "cut at {cut}: {found} commits, {end:?}");
    }
    assert_eq!(written.read(bytes).0, written.commits.len());
}

#[test]
fn every_changed_bit_leaves_a_prefix_and_is_noticed() {
    let written = Written::new(12, 16);
    let mut bytes = written.disk.bytes.clone();
    let last = written.writes.last().unwrap();
    let mut noticed = 0;
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (found, end) = written.read(&bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
        if found == written.commits.len() {
            continue;
        }
        // A crash may have damaged the last write. All earlier writes are known to have been
        // durable.
        let in_last = (bit / 8) as u64 >= last.offset_bytes;
        assert!(in_last || end.lost_to_lsn.is_some(), "bit {bit}: {found} commits, {end:?}");
        noticed += u64::from(!in_last);
    }
    assert!(noticed > 1000, "{noticed}");
}

/// Power loss may lose any write of a log that is not flushed. The log then ends before that write,
/// and nothing says that more was durable.
#[test]
fn a_log_that_was_not_flushed_claims_nothing() {
    let written = Written::with(12, 16, false);
    assert!(!written.start.flushed && written.read(&written.disk.bytes).1.lost_to_lsn.is_none());
    for write in &written.writes {
        let mut bytes = written.disk.bytes.clone();
        bytes[write.offset_bytes as usize..][..write.len_bytes as usize].fill(0);
        let (found, end) = written.read(&bytes);
        assert!(found < written.commits.len() && end.lost_to_lsn.is_none(), "{end:?}");
        assert_eq!(end.durable_timestamp, 0);
    }
}

#[test]
fn every_lost_sector_leaves_a_prefix() {
    let written = Written::new(13, 40);
    for sector in 0..written.disk.bytes.len() / 512 {
        for filling in [0, 0xff] {
            let mut bytes = written.disk.bytes.clone();
            bytes[sector * 512..(sector + 1) * 512].fill(filling);
            let (found, _) = written.read(&bytes);
            let at = (sector * 512) as u64;
            let hit = written
                .writes
                .iter()
                .position(|write| write.offset_bytes + u64::from(write.len_bytes) > at)
                .unwrap();
            let before = hit.checked_sub(1).map_or(0, |before| written.writes[before].end_lsn);
            assert!(found >= written.before(before), "sector {sector}");
        }
    }
}

#[test]
fn sectors_that_change_places_leave_a_prefix() {
    let written = Written::new(14, 40);
    let mut random = fastrand::Rng::with_seed(14);
    let sectors = written.disk.bytes.len() / 512;
    for _ in 0..2000 {
        let mut bytes = written.disk.bytes.clone();
        let (from, to) = (random.usize(..sectors) * 512, random.usize(..sectors) * 512);
        bytes.copy_within(from..from + 512, to);
        written.read(&bytes);
    }
}

#[test]
fn anything_may_lie_on_the_device() {
    let written = Written::new(15, 30);
    let mut random = fastrand::Rng::with_seed(15);
    for _ in 0..3000 {
        let mut bytes = written.disk.bytes.clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            let len = random.usize(..600).min(bytes.len() - at);
            bytes[at..at + len].iter_mut().for_each(|byte| *byte = random.u8(..));
        }
        written.read(&bytes);
    }
}
