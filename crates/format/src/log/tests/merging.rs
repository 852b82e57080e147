//! Merges several logs: all timestamps up to the first missing one.

use super::*;

/// Writes `timestamps` commits to `log_count` logs. Returns where the logs begin, and which log has
/// which timestamp.
fn spread(
    disk: &mut Disk,
    random: &mut fastrand::Rng,
    log_count: u16,
    timestamps: u64,
) -> (Vec<LogPosition>, Vec<Commit>, Vec<usize>) {
    let mut writers: Vec<LogWriter> = (0..log_count).map(|log| disk.writer(6, log)).collect();
    let starts = writers.iter().map(LogWriter::position).collect();
    let (mut commits, mut homes) = (Vec::new(), Vec::new());
    for timestamp in 1..=timestamps {
        let commit = commit(random, timestamp, 300);
        let home = random.usize(..writers.len());
        append_somehow(&mut writers[home], random, &commit);
        commits.push(commit);
        homes.push(home);
        if random.u32(0..5) == 0 {
            // First write the pending records of the other logs, so that all commits so far are
            // durable.
            for writer in &mut writers {
                disk.write_all(writer, 2048);
            }
            writers.iter_mut().for_each(|writer| writer.note_all_durable(timestamp));
        }
    }
    for writer in &mut writers {
        disk.write_all(writer, 2048);
    }
    (starts, commits, homes)
}

/// Merges the logs. Answers to reads come late and in any order.
fn merge(
    bytes: &[u8],
    starts: &[LogPosition],
    first_timestamp: u64,
    random: &mut fastrand::Rng,
) -> (Vec<Commit>, MergeEnd) {
    let readers = starts.iter().map(|start| LogReader::new(identity(6, 0).store, *start, 2048));
    let mut merge = LogMerge::new(readers, first_timestamp);
    let (mut found, mut parts, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        match merge.advance() {
            MergeStep::Read { log, offset_bytes, len_bytes } => {
                asked.push((log, offset_bytes, len_bytes));
            }
            MergeStep::Wait => {
                let (log, offset_bytes, len_bytes) = asked.swap_remove(random.usize(..asked.len()));
                merge.give(log, part(bytes, offset_bytes, len_bytes));
            }
            MergeStep::Record => {
                gather(&mut found, &mut parts, &merge.record().unwrap());
                if random.u32(0..50) == 0 {
                    merge = merge.rest();
                    asked.clear();
                }
            }
            MergeStep::End => {
                assert!(parts.is_empty(), "a commit whose last part is missing");
                assert!(merge.record().is_none() && asked.is_empty());
                assert!(merge.readers().all(|reader| reader.end().is_some()));
                return (found, merge.end().unwrap());
            }
        }
    }
}

#[test]
fn records_come_in_the_order_of_their_timestamps() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut disk = Disk::new(512, 512 * 8);
        let timestamps = random.u64(0..150);
        let log_count = random.u16(1..6);
        let (starts, commits, _) = spread(&mut disk, &mut random, log_count, timestamps);
        let first = random.u64(1..=timestamps + 1);
        let (found, end) = merge(&disk.bytes, &starts, first, &mut random);
        assert!(found == commits[first as usize - 1..], "seed {seed}: {end:?}");
        let expected = MergeEnd {
            next_timestamp: timestamps + 1,
            taken: timestamps + 1 - first,
            skipped: first - 1,
            dropped: 0,
            durable_timestamp: end.durable_timestamp,
            lost: false,
        };
        assert!(!end.is_damaged());
        assert_eq!(end, expected, "seed {seed}");
    }
}

#[test]
fn nothing_behind_a_gap_comes_out() {
    let (mut gaps, mut damaged) = (0, 0);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut disk = Disk::new(512, 512 * 8);
        let (starts, commits, homes) = spread(&mut disk, &mut random, 4, 120);
        // One log loses a block.
        let broken = random.usize(..4);
        let mut bytes = disk.bytes.clone();
        let reader_segments = {
            let mut reader = LogReader::new(identity(6, 0).store, starts[broken], 4096);
            while let step @ (LogStep::Read { .. } | LogStep::Record) = reader.advance() {
                if let LogStep::Read { offset_bytes, len_bytes } = step {
                    reader.give(part(&bytes, offset_bytes, len_bytes));
                }
            }
            reader.segments().to_vec()
        };
        let at = reader_segments[random.usize(..reader_segments.len())] as usize
            + 512 * random.usize(0..8);
        if let Some(block) = bytes.get_mut(at..at + 512) {
            block.fill(0);
        }
        let left = read(&bytes, starts[broken], 4096).0.len();
        let whole = homes.iter().filter(|home| **home == broken).count();
        // The first commit that the broken log should have and does not.
        let missing = (1..=120u64)
            .filter(|timestamp| homes[*timestamp as usize - 1] == broken)
            .nth(left)
            .unwrap_or(121);
        let (found, end) = merge(&bytes, &starts, 1, &mut random);
        assert!(found == commits[..missing as usize - 1], "seed {seed}: {end:?}");
        assert_eq!(end.next_timestamp, missing);
        assert_eq!(end.taken + end.dropped, 120 - (whole - left) as u64, "seed {seed}: {end:?}");
        // The log's own chunks state all durable commits but the last, and chunks of other logs
        // state that one if they were written later.
        let durable = end.durable_timestamp >= missing;
        assert_eq!(end.is_damaged(), durable || end.lost, "seed {seed}: {end:?}");
        damaged += u64::from(end.is_damaged());
        gaps += u64::from(end.dropped > 0);
    }
    assert!(gaps > 10 && damaged > 10, "{gaps} {damaged}");
}

#[test]
fn no_logs_hold_nothing() {
    let (found, end) = merge(&[], &[], 5, &mut fastrand::Rng::with_seed(1));
    assert!(found.is_empty());
    assert_eq!(end, MergeEnd { next_timestamp: 5, ..MergeEnd::default() });
}

#[test]
fn the_last_chunk_of_a_log_is_missed_if_another_log_went_on() {
    let mut disk = Disk::new(512, 4096);
    let (mut first, mut second) = (disk.writer(6, 0), disk.writer(6, 1));
    let starts = [first.position(), second.position()];
    append(&mut first, &(1, vec![Owned::Drop(1)]));
    disk.write_all(&mut first, 2048);
    let (block, header) = (512, 512);
    let last = first.segments().next().unwrap() as usize + header;
    append(&mut second, &(2, vec![Owned::Drop(2)]));
    disk.write_all(&mut second, 2048);
    let mut random = fastrand::Rng::with_seed(1);
    for known in [false, true] {
        if known {
            // Timestamp 2 waits for timestamp 1, and the chunk that states both as durable comes
            // after it.
            second.note_all_durable(2);
            append(&mut second, &(3, vec![Owned::Drop(3)]));
            disk.write_all(&mut second, 2048);
        }
        let mut bytes = disk.bytes.clone();
        bytes[last..last + block].fill(0);
        let (found, end) = merge(&bytes, &starts, 1, &mut random);
        assert!(found.is_empty());
        assert_eq!((end.next_timestamp, end.is_damaged()), (1, known), "{end:?}");
    }
}

#[test]
fn timestamps_that_a_later_life_gave_out_again_count_once() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut disk = Disk::new(512, 16 << 10);
        let (old, commits, _) = spread(&mut disk, &mut random, 3, 60);
        let durable = merge(&disk.bytes, &old, 1, &mut random).1.durable_timestamp;
        let last = random.u64(durable.max(1)..=60);
        // The log of the next incarnation, after the commit `last` of the previous one.
        let mut writer = disk.writer(7, 0);
        let new = writer.position();
        let later: Vec<Commit> =
            (last + 1..=last + 30).map(|timestamp| commit(&mut random, timestamp, 300)).collect();
        for commit in &later {
            append_somehow(&mut writer, &mut random, commit);
        }
        disk.write_all(&mut writer, 2048);
        let ended = old.iter().map(|position| position.ended_at(last));
        let starts: Vec<LogPosition> = ended.chain([new]).collect();
        let (found, end) = merge(&disk.bytes, &starts, 1, &mut random);
        let expected: Vec<Commit> =
            commits[..last as usize].iter().chain(&later).cloned().collect();
        assert_eq!(found, expected, "seed {seed}");
        assert!(!end.is_damaged());
        // No commit that the later incarnation built on may be missing.
        let none: Vec<LogPosition> = old.iter().map(|position| position.ended_at(61)).collect();
        assert!(merge(&disk.bytes, &none, 1, &mut random).1.is_damaged());
    }
}
