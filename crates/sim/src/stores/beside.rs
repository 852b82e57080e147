//! Readers of a store in other processes, while its tasks continue: a second store on the same
//! devices, opened as such a process opens it.

use qpair_engine::{Canary, ErrorKind, Runtime, Store, StoreOptions};

use super::lives::{Cut, Run};
use super::oracle::Backup;
use super::state::Unread;

impl Run {
    /// Opens a reader and reads everything. Checkpoints come meanwhile.
    pub(super) fn read_beside(&mut self, store: &Store) -> Result<(), Cut> {
        let Some(members) = self.world.members_again() else { return Ok(()) };
        let clock = self.world.clock.clone();
        let options = StoreOptions {
            runtime: Runtime::Stepped { seed: self.rng.u64(..), clock },
            beside_writer: true,
            read_only: true,
            workers: self.rng.usize(1..3),
            canary: self.canary.filter(|canary| *canary == Canary::UncheckedReader),
            ..self.scenario.store_options()
        };
        let reader = match Store::open(members, &options) {
            Ok(reader) => reader,
            Err(error) => return self.reader_failed("opening a reader", &error),
        };
        let checkpoints = self.rng.u8(0..4);
        for _ in 0..checkpoints {
            if let Err(error) = store.checkpoint() {
                reader.crash();
                return self.errand_failed("a checkpoint beside a reader", &error);
            }
            for _ in 0..self.rng.u32(0..200) {
                let _ = store.step();
            }
        }
        let seen = reader.seen();
        let found = self.read_all_of(&reader);
        let now = self.notes(|notes| notes.oracle.begins());
        reader.crash();
        let (found, timestamp) = match (found, seen) {
            (Ok(found), Ok(Some((timestamp, _)))) => (found.values, timestamp),
            (Err(Unread::Error(error)), _) | (_, Err(error)) => {
                return self.reader_failed("a reader", &error);
            }
            // The notes no longer have a table whose drop was recovered; an older checkpoint has it.
            (Err(Unread::Wrong(what)), Ok(Some((timestamp, _))))
                if timestamp < self.recovered_to && what.ends_with("was never made") =>
            {
                self.say(format!("a reader of {timestamp}: {what}"));
                return Ok(());
            }
            (Err(Unread::Wrong(what)), _) => return Err(Cut::Wrong(format!("a reader: {what}"))),
            (_, Ok(None)) => return Err(Cut::Wrong("a reader sees no checkpoint".to_owned())),
        };
        self.counts.readers += 1;
        self.say(format!("a reader of {timestamp}: {} records", found.len()));
        // Until the first checkpoint of an incarnation, a reader sees less than recovery found.
        if timestamp >= self.recovered_to {
            let seen = Backup { asked: 0, made: now, timestamp, found };
            self.notes(|notes| notes.oracle.has_backup(seen));
        }
        Ok(())
    }

    fn reader_failed(&mut self, doing: &str, error: &qpair_engine::Error) -> Result<(), Cut> {
        self.say(format!("{doing}: {error}"));
        if error.kind() == ErrorKind::SnapshotLost {
            self.counts.readers_lost += 1;
            return Ok(());
        }
        match self.judge_error(doing, error) {
            Cut::Excused(_) => Ok(()),
            wrong => Err(wrong),
        }
    }
}
