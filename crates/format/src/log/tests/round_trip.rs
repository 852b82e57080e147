//! Reads back appended records, from every position at which a reader may start.

use super::*;
use crate::error::ErrorKind;

#[test]
fn what_is_appended_is_read() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let block = 512 << random.u32(0..4);
        let mut disk = Disk::new(block, block * random.u32(4..40));
        let mut writer = disk.writer(seed, 3);
        let start = writer.position();
        let capacity = block as usize * random.usize(2..12);
        let value_max = [20, 300, 30_000][random.usize(..3)];
        let (mut commits, mut timestamp) = (Vec::new(), 0);
        for _ in 0..random.usize(0..80) {
            timestamp += random.u64(1..4);
            let commit = commit(&mut random, timestamp, value_max);
            append(&mut writer, &commit);
            commits.push(commit);
            if random.u32(0..4) == 0
                && let Some(planned) = disk.write(&mut writer, capacity)
            {
                writer.complete(&planned);
            }
        }
        disk.write_all(&mut writer, capacity);
        for at_once in [512, 8192, 1 << 20] {
            let (found, end) = read(&disk.bytes, start, at_once);
            assert_eq!(found.len(), commits.len(), "seed {seed}, {end:?}");
            assert!(found == commits, "seed {seed}");
            assert_eq!((end.lsn, end.timestamp), (writer.end_lsn(), timestamp), "seed {seed}");
            assert_eq!(end.lost_to_lsn, None, "seed {seed}");
            assert_eq!(end.position, writer.position(), "seed {seed}");
        }
    }
}

#[test]
fn a_position_sees_all_that_is_appended_later() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut disk = Disk::new(512, 512 * random.u32(4..20));
        let mut writer = disk.writer(9, 1);
        let (mut commits, mut positions) = (Vec::new(), Vec::new());
        for timestamp in 1..60 {
            positions.push((commits.len(), writer.position()));
            let commit = commit(&mut random, timestamp, 1500);
            append(&mut writer, &commit);
            commits.push(commit);
            for _ in 0..random.u32(0..3) {
                if let Some(planned) = disk.write(&mut writer, 3072) {
                    writer.complete(&planned);
                }
            }
        }
        disk.write_all(&mut writer, 3072);
        for (already, position) in positions {
            let encoded = position.encode();
            assert_eq!(LogPosition::decode(&encoded).unwrap(), position);
            let (found, end) = disk.read(position);
            assert!(found.len() >= commits.len() - already, "seed {seed}: {end:?}");
            assert!(found[..] == commits[commits.len() - found.len()..], "seed {seed}");
        }
    }
}

#[test]
fn segments_go_round() {
    // The log uses few segments again and again, so that chunks of earlier rounds lie behind its
    // end.
    let mut random = fastrand::Rng::with_seed(1);
    let mut disk = Disk::new(512, 512 * 6);
    let mut writer = disk.writer(5, 0);
    let (mut start, mut since) = (writer.position(), Vec::new());
    let mut free: Vec<u64> = Vec::new();
    for timestamp in 1..400 {
        while writer.needs_segment() {
            let segment = free.pop().unwrap_or_else(|| disk.segment());
            writer.give_segment(segment);
        }
        let commit = commit(&mut random, timestamp, 400);
        append(&mut writer, &commit);
        since.push(commit);
        if let Some(planned) = disk.write(&mut writer, 2048) {
            writer.complete(&planned);
        }
        if timestamp % 16 == 0 {
            disk.write_all(&mut writer, 2048);
            let (found, end) = disk.read(start);
            assert!(found.ends_with(&since), "timestamp {timestamp}: {end:?}");
            assert_eq!((end.timestamp, end.lost_to_lsn), (timestamp, None));
            start = writer.position();
            since.clear();
            let before = writer.segments().count();
            let discarded = writer.discard_before(&start);
            assert_eq!(writer.segments().count(), before - discarded.len());
            assert!(writer.segments().all(|segment| !discarded.contains(&segment)));
            assert!(writer.segments().any(|segment| segment == start.segment_offset_bytes));
            free.extend(discarded);
        }
    }
    assert!(disk.next_free < 512 * 6 * 30, "segments are used again");
}

#[test]
fn a_reader_names_the_segments_it_passed() {
    let written = Written::new(3, 60);
    let mut reader = LogReader::new(identity(3, 0).store, written.start, 512);
    loop {
        match reader.advance() {
            LogStep::Read { offset_bytes, len_bytes } => {
                // Asked again, the reader requests the same bytes.
                assert_eq!(reader.advance(), LogStep::Read { offset_bytes, len_bytes });
                reader.give(part(&written.disk.bytes, offset_bytes, len_bytes));
            }
            LogStep::Record => (),
            LogStep::End => break,
        }
    }
    let len = u64::from(written.disk.geometry.segment_bytes);
    let mut expected: Vec<u64> = Vec::new();
    for write in &written.writes {
        let segment = (write.offset_bytes - 1536) / len * len + 1536;
        if expected.last() != Some(&segment) {
            expected.push(segment);
        }
    }
    assert!(expected.len() > 5);
    assert_eq!(reader.segments(), expected);
}

#[test]
fn without_a_segment_the_log_waits() {
    let mut disk = Disk::new(512, 512 * 4);
    let mut writer = disk.writer(5, 0);
    let big = (1, vec![Owned::Put(1, b"key".to_vec(), vec![3; 5000])]);
    append(&mut writer, &big);
    let mut buffer = vec![0; 4096];
    while let Some(planned) = writer.next_write(buffer.as_mut_slice()) {
        assert_eq!(planned.greatest_timestamp, 0, "nothing of it is whole");
    }
    assert!(writer.needs_segment() && writer.pending_bytes() > 0);
    writer.give_segment(disk.segment());
    assert!(writer.next_write(buffer.as_mut_slice()).is_some());
}

#[test]
fn what_cannot_be_appended_leaves_nothing_behind() {
    let mut disk = Disk::new(512, 4096);
    let mut writer = disk.writer(5, 0);
    append(&mut writer, &(7, Vec::new()));
    let end = writer.end_lsn();
    let refused = writer.append(7, |_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let long = vec![0; 70_000];
    let refused = writer.append(8, |record| record.push(Operation::Delete { tree: 1, key: &long }));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(writer.end_lsn(), end);
    append(&mut writer, &(8, vec![Owned::Drop(1)]));
    let start = writer.position();
    disk.write_all(&mut writer, 4096);
    assert_eq!(disk.read(start).0, [(7, Vec::new()), (8, vec![Owned::Drop(1)])]);
}
