//! A reader beside a writer, on one simulated device: whatever it reads is the state of one
//! checkpoint, or the error that the checkpoint is lost; and later readers see no older one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{SUPERBLOCK_BYTES, existing, options, ram, read_bytes, write_bytes};
use qpair_block::BlockDevice;
use qpair_block::time::SimClock;
use qpair_crypt::EncryptionKey;
use qpair_engine::{
    Canary, Encryption, ErrorKind, JoinHandle, Result, Runtime, Store, StoreOptions,
};
use qpair_sim_block::{SimDevice, SimOptions};

const KEYS: u64 = 300;
const COUNTER: &[u8] = b"zz counter";

fn key(index: u64) -> Vec<u8> {
    format!("key {index:04}").into_bytes()
}

/// Returns the key that a commit changes, and its value, which is large for some.
fn change(commit: u64) -> (Vec<u8>, Vec<u8>) {
    let mut rng = fastrand::Rng::with_seed(commit);
    let len = if rng.u8(0..16) == 0 { 3000 } else { rng.usize(8..120) };
    let mut value = commit.to_be_bytes().to_vec();
    value.resize(len, commit as u8);
    (key(rng.u64(..KEYS)), value)
}

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns the state after a number of commits.
fn state(commits: u64) -> State {
    let mut state: State = (1..=commits).map(change).collect();
    state.insert(COUNTER.to_vec(), commits.to_be_bytes().to_vec());
    state
}

struct World {
    clock: SimClock,
    device: SimDevice,
    rng: fastrand::Rng,
    commits: u64,
    canary: Option<Canary>,
    encryption: Option<Arc<dyn Encryption>>,
}

/// A read of a whole table, under way.
type Reading = JoinHandle<Result<State>>;

impl World {
    fn new(seed: u64, canary: Option<Canary>) -> Self {
        let clock = SimClock::new();
        let device = SimDevice::new(SimOptions::new(seed, &clock)).unwrap();
        let key = || Arc::new(EncryptionKey::from_bytes([7; 32]).simulated()) as _;
        let encryption = (seed % 3 == 1).then(key);
        let rng = fastrand::Rng::with_seed(seed);
        Self { clock, device, rng, commits: 0, canary, encryption }
    }

    fn stepped(&mut self, options: StoreOptions) -> StoreOptions {
        let runtime = Runtime::Stepped { seed: self.rng.u64(..), clock: self.clock.clone() };
        let encryption = self.encryption.clone();
        StoreOptions { workers: 1, runtime, canary: self.canary, encryption, ..options }
    }

    fn members(&self) -> Vec<Arc<dyn BlockDevice>> {
        vec![Arc::new(self.device.opened_again())]
    }

    fn writer(&mut self, format: bool) -> Store {
        let most = if self.rng.bool() { 1 << 30 } else { self.rng.u64(1..400) * 512 };
        let with = if format { options(512, 96) } else { existing(512, 96) };
        let with = StoreOptions { readers_bytes_max: most, checkpoint_bytes: 256 << 10, ..with };
        let options = self.stepped(with);
        Store::open(self.members(), &options).unwrap()
    }

    fn reader(&mut self) -> Result<Store> {
        let options = self.stepped(StoreOptions {
            beside_writer: true,
            read_only: true,
            ..existing(512, 64)
        });
        Store::open(self.members(), &options)
    }

    fn commit(&mut self, store: &Store) {
        let table = store.table("t").unwrap();
        self.commits += 1;
        let (key, value) = change(self.commits);
        let mut transaction = store.begin();
        transaction.put(&table, &key, &value).unwrap();
        transaction.put(&table, COUNTER, &self.commits.to_be_bytes()).unwrap();
        transaction.commit().unwrap();
    }

    fn begin_reading(&mut self, reader: &Store) -> Result<Reading> {
        let table = reader.existing_table("t")?.unwrap().task();
        let by_keys = self.rng.bool();
        let order: Vec<u64> = (0..KEYS).map(|_| self.rng.u64(..KEYS)).collect();
        Ok(reader.spawn(move || async move {
            let mut found = State::new();
            if by_keys {
                for key in order.into_iter().chain(0..KEYS).map(key) {
                    if let Some(value) = table.get(&key).await? {
                        found.insert(key, value);
                    }
                }
                found.insert(COUNTER.to_vec(), table.get(COUNTER).await?.unwrap_or_default());
            } else {
                let mut range = table.range(..)?;
                while let Some((key, value)) = range.next().await? {
                    found.insert(key, value);
                }
            }
            Ok(found)
        }))
    }
}

#[derive(Default)]
struct Counts {
    whole: u64,
    lost: u64,
    beside_newer: u64,
}

/// Runs a writer with readers beside it. Returns what is wrong, if something is.
fn run(seed: u64, canary: Option<Canary>, counts: &mut Counts) -> Result<(), String> {
    let mut world = World::new(seed, canary);
    let mut writer = Some(world.writer(true));
    for _ in 0..world.rng.u64(1..200) {
        world.commit(writer.as_ref().unwrap());
    }
    writer.as_ref().unwrap().checkpoint().unwrap();
    let (mut readers, mut newest_seen) = (Vec::<(Store, Option<Reading>, Option<u64>)>::new(), 0);
    for _ in 0..60 {
        match (world.rng.u8(..16), &writer) {
            (0..=5, Some(store)) => {
                let store = store.clone();
                (0..world.rng.u64(1..40)).for_each(|_| world.commit(&store));
            }
            (6..=8, Some(store)) => store.checkpoint().unwrap(),
            (9, Some(_)) => {
                let store = writer.take().unwrap();
                match world.rng.bool() {
                    true => store.close().unwrap(),
                    // The commits since the last flush are in the log, which outlives the process.
                    false => store.crash(),
                }
            }
            (10, None) => writer = Some(world.writer(false)),
            (11, _) if !readers.is_empty() => {
                let index = world.rng.usize(..readers.len());
                let (store, reading, _) = readers.swap_remove(index);
                drop(reading);
                store.close().unwrap();
            }
            (12 | 13, _) if readers.len() < 3 => {
                let reader = world.reader().map_err(|error| format!("opening: {error}"))?;
                readers.push((reader, None, None));
            }
            _ => {}
        }
        for (reader, reading, seen) in &mut readers {
            let (timestamp, outdated) = reader.seen().map_err(|error| error.to_string())?.unwrap();
            if reading.is_none() {
                *reading = match world.begin_reading(reader) {
                    Ok(reading) => Some(reading),
                    Err(error) if error.kind() == ErrorKind::SnapshotLost => None,
                    Err(error) => return Err(format!("opening the table: {error}")),
                };
                if seen.is_none() && !outdated {
                    *seen = Some(timestamp);
                    if timestamp < newest_seen {
                        return Err(format!("{timestamp} seen after {newest_seen}"));
                    }
                    newest_seen = timestamp;
                }
            }
            for _ in 0..world.rng.u32(0..400) {
                let _ = reader.step();
            }
            if world.rng.bool()
                && let Some(reading) = reading.take()
            {
                match reading.join().unwrap() {
                    Ok(found) => {
                        let counter = found.get(COUNTER).unwrap();
                        let at = u64::from_be_bytes(counter[..].try_into().unwrap());
                        if found != state(at) {
                            return Err(format!("not the state after {at} commits"));
                        }
                        counts.whole += 1;
                        counts.beside_newer += u64::from(outdated);
                    }
                    Err(error) if error.kind() == ErrorKind::SnapshotLost => counts.lost += 1,
                    Err(error) => return Err(format!("{:?}: {error}", error.kind())),
                }
            }
        }
    }
    for (reader, reading, _) in readers {
        drop(reading);
        reader.close().unwrap();
    }
    let store = writer.unwrap_or_else(|| world.writer(false));
    let found: State = store.table("t").unwrap().iter().map(Result::unwrap).collect();
    assert_eq!(found, state(world.commits));
    store.close().unwrap();
    Ok(())
}

#[test]
fn a_reader_sees_one_checkpoint_or_is_told_that_it_is_lost() {
    let mut counts = Counts::default();
    for seed in 0..40 {
        if let Err(what) = run(seed, None, &mut counts) {
            panic!("seed {seed}: {what}");
        }
    }
    // Readers whose checkpoint is no longer the newest still read, and some are given up.
    assert!(counts.whole > 100 && counts.beside_newer > 20 && counts.lost > 5, "{}", {
        format!("{} whole, {} beside, {} lost", counts.whole, counts.beside_newer, counts.lost)
    });
}

#[test]
fn without_the_writers_or_the_readers_part_other_pages_are_read() {
    for canary in [Canary::ForgottenReaders, Canary::UncheckedReader] {
        let caught =
            (0..100).find(|seed| run(*seed, Some(canary), &mut Counts::default()).is_err());
        qpair_engine::abandon_stepped();
        assert!(caught.is_some(), "{canary:?}");
    }
}

/// A device loses its cache while a reader is there: a record that the reader has seen is gone, and
/// the next writer counts on from the record before.
#[test]
fn a_record_that_the_device_lost_is_not_taken_for_a_later_one() {
    for seed in 0..20 {
        let mut world = World::new(seed, None);
        let store = world.writer(true);
        (0..100).for_each(|_| world.commit(&store));
        store.checkpoint().unwrap();
        (0..100).for_each(|_| world.commit(&store));
        let records = read_bytes(&world.device, SUPERBLOCK_BYTES, 2 * 512);
        store.checkpoint().unwrap();
        let reader = world.reader().unwrap();
        store.crash();
        write_bytes(&world.device, SUPERBLOCK_BYTES, &records);
        let store = world.writer(false);
        for _ in 0..world.rng.u32(0..6) {
            (0..30).for_each(|_| world.commit(&store));
            store.checkpoint().unwrap();
        }
        match world.begin_reading(&reader).and_then(|reading| reading.join().unwrap()) {
            Ok(found) => panic!("seed {seed}: {} records of a lost checkpoint", found.len()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{seed}: {error}"),
        }
        assert!(reader.seen().unwrap().unwrap().1, "seed {seed}: there is a newer one");
        reader.close().unwrap();
        store.close().unwrap();
    }
}

/// Where there are no locks, as on some network file systems, the record says whether a checkpoint
/// is still there.
#[test]
fn without_locks_a_reader_has_its_checkpoint_until_the_next_one() {
    let device = ram();
    let writer = Store::open(vec![device.clone()], &options(512, 96)).unwrap();
    let table = writer.table("t").unwrap();
    let put = |value: &[u8]| {
        (0..KEYS).for_each(|index| assert!(table.put(&key(index), value).is_ok()));
    };
    let beside = StoreOptions { beside_writer: true, read_only: true, ..existing(512, 64) };
    let open = || Store::open(vec![device.clone()], &beside).unwrap();
    put(&[1; 80]);
    writer.checkpoint().unwrap();
    let reader = open();
    let seen = reader.existing_table("t").unwrap().unwrap();
    put(&[2; 80]);
    // The pages that left the writer's memory are in other places.
    assert_eq!(seen.get(&key(0)).unwrap().unwrap(), [1; 80]);
    assert!(!reader.seen().unwrap().unwrap().1);
    writer.checkpoint().unwrap();
    assert!(reader.seen().unwrap().unwrap().1);
    let read: Result<State> = seen.range(..).unwrap().collect();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::SnapshotLost);
    let newer = open().existing_table("t").unwrap().unwrap();
    let read: State = newer.range(..).unwrap().map(Result::unwrap).collect();
    assert!(read.len() == KEYS as usize && read.values().all(|value| value == &[2; 80]));
}
