//! Reads logs as a crash leaves them: the last writes are there in part, over older content.

use super::*;

/// The log of one incarnation, written over an earlier one. Its writes may be undone sector by
/// sector.
struct Life {
    disk: Disk,
    writer: LogWriter,
    start: LogPosition,
    /// The previous content of the device below each write that is not known to be durable.
    under: Vec<(PlannedWrite, Vec<u8>)>,
    commits: Vec<Commit>,
}

impl Life {
    /// Begins an incarnation. All incarnations begin in the same segments.
    fn begin(mut disk: Disk, incarnation: u64) -> Self {
        disk.next_free = 1536;
        let writer = disk.writer(incarnation, 0);
        let start = writer.position();
        Self { disk, writer, start, under: Vec::new(), commits: Vec::new() }
    }

    fn append(&mut self, random: &mut fastrand::Rng) {
        let timestamp = self.commits.len() as u64 + 1;
        let commit = commit(random, timestamp, 700);
        append_somehow(&mut self.writer, random, &commit);
        self.commits.push(commit);
    }

    fn write(&mut self) {
        let before = self.disk.bytes.clone();
        if let Some(planned) = self.disk.write(&mut self.writer, 2048) {
            let under = part(&before, planned.offset_bytes, planned.len_bytes);
            let mut under = under.to_vec();
            under.resize(planned.len_bytes as usize, 0);
            self.under.push((planned, under));
        }
    }

    /// Undoes sectors of the writes that are not durable.
    fn crash(&mut self, random: &mut fastrand::Rng) {
        for (planned, under) in &self.under {
            let lost = random.u32(0..3);
            for (index, old) in under.chunks(512).enumerate() {
                if lost == 0 || (lost == 1 && random.bool()) {
                    let at = planned.offset_bytes as usize + index * 512;
                    self.disk.bytes[at..at + 512].copy_from_slice(old);
                }
            }
        }
    }
}

#[test]
fn what_was_durable_survives_and_older_lives_stay_dead() {
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut disk = Disk::new(512, 512 * random.u32(4..12));
        for incarnation in 1..5 {
            let mut life = Life::begin(disk, incarnation);
            let mut durable = 0;
            for _ in 0..random.u32(0..30) {
                for _ in 0..random.u32(1..4) {
                    life.append(&mut random);
                }
                for _ in 0..random.u32(0..4) {
                    life.write();
                }
                // Writes complete in any order.
                while life.under.len() > random.usize(0..4) {
                    let index = random.usize(..life.under.len());
                    let (planned, _) = life.under.swap_remove(index);
                    life.writer.complete(&planned);
                    assert!(life.writer.durable_timestamp() >= durable);
                    durable = life.writer.durable_timestamp();
                }
            }
            life.crash(&mut random);
            let (found, end) = life.disk.read(life.start);
            assert!(found.len() as u64 >= durable, "seed {seed}: {durable} durable, {end:?}");
            assert!(found[..] == life.commits[..found.len()], "seed {seed}: {end:?}");
            assert_eq!(end.lost_to_lsn, None, "seed {seed}");
            disk = life.disk;
        }
    }
}

#[test]
fn every_torn_end_is_told_from_damage() {
    let written = Written::new(21, 30);
    let last = written.writes.last().unwrap();
    let (at, sectors) = (last.offset_bytes as usize, last.len_bytes as usize / 512);
    let before = written.before(written.writes[written.writes.len() - 2].end_lsn);
    for kept in 0..1u32 << sectors {
        let mut bytes = written.disk.bytes.clone();
        for sector in (0..sectors).filter(|sector| kept >> sector & 1 == 0) {
            bytes[at + sector * 512..at + (sector + 1) * 512].fill(0);
        }
        let (found, end) = written.read(&bytes);
        assert_eq!(end.lost_to_lsn, None, "kept {kept:b}");
        assert!(found >= before, "kept {kept:b}: {end:?}");
    }
}
