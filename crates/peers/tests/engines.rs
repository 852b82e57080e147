//! One test over the three: what goes in comes out, in order, transactions are whole, and all of it
//! is there after reopening.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::ops::ControlFlow;
use std::path::PathBuf;

use qpair::ErrorKind;
use qpair_bench::kv::{
    Begin, Direction, Durability, KeyRange, Kv, KvLoader, KvSession, System, TableId, block_on,
};
use qpair_peers::engine::{Engine, Session, Settings, Start};
use qpair_peers::lmdb::Lmdb;
use qpair_peers::rocksdb::{Rocks, RocksSession};
use qpair_peers::wiredtiger::WiredTiger;
use qpair_peers::{Error, Peer};

const NUMBERS: TableId = TableId(0);
const OTHER: TableId = TableId(1);

fn settings(name: &str, log: bool) -> Settings {
    // Next to the build, where direct I/O is likelier to work than in /tmp.
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{log}"));
    let _ = std::fs::remove_dir_all(&path);
    Settings {
        path,
        tables: vec!["numbers".to_owned(), "other".to_owned()],
        memory_bytes: 32 << 20,
        page_bytes: 4096,
        log,
        background_threads: 2,
    }
}

async fn keys<S: KvSession>(
    session: &mut S,
    range: (&[u8], &[u8]),
    direction: Direction,
    limit: usize,
) -> Vec<u32> {
    let mut found = Vec::new();
    let range = KeyRange { from: range.0, to: range.1 };
    session
        .scan(NUMBERS, range, direction, limit, |key, value| {
            found.push(u32::from_be_bytes(key.try_into().unwrap()));
            assert_eq!(&value[..4], key);
            ControlFlow::Continue(())
        })
        .await
        .unwrap();
    found
}

async fn fill<S: KvSession>(session: &mut S) {
    let mut loader = session.loader(NUMBERS).await.unwrap();
    for number in (0..10_000_u32).step_by(2) {
        let key = number.to_be_bytes();
        loader.push(&key, &key.repeat(30)).await.unwrap();
    }
    loader.finish().await.unwrap();
    // A neighbour, which no scan may see.
    session.begin(Begin::read_write(Durability::Sync)).await.unwrap();
    session.put(OTHER, &[0], b"other").await.unwrap();
    session.commit().await.unwrap();
}

async fn exercise<S: KvSession>(session: &mut S) {
    let key = |number: u32| number.to_be_bytes();
    let (three, nine) = (key(3), key(9));
    let (four, ten) = (key(4), key(10));
    let mut value = Vec::new();
    session.begin(Begin::read_only()).await.unwrap();
    use Direction::{Backward, Forward};
    assert_eq!(keys(session, (&three, &nine), Forward, 99).await, [4, 6, 8]);
    assert_eq!(keys(session, (&three, &nine), Backward, 99).await, [8, 6, 4]);
    assert_eq!(keys(session, (&four, &ten), Forward, 99).await, [4, 6, 8]);
    assert_eq!(keys(session, (&four, &ten), Backward, 99).await, [8, 6, 4]);
    assert_eq!(keys(session, (&[], &four), Backward, 99).await, [2, 0]);
    assert_eq!(keys(session, (&[], &[]), Forward, 2).await, [0, 2]);
    assert_eq!(keys(session, (&[], &[]), Backward, 2).await, [9998, 9996]);
    assert_eq!(keys(session, (&[], &[]), Forward, usize::MAX).await.len(), 5000);
    assert!(keys(session, (&key(10_000), &[]), Forward, 9).await.is_empty());
    assert_eq!(keys(session, (&three, &key(20_000)), Backward, 1).await, [9998]);
    assert!(!session.get_into(NUMBERS, &three, &mut value).await.unwrap() && value.is_empty());
    assert!(session.get_into(NUMBERS, &four, &mut value).await.unwrap());
    assert_eq!(value, four.repeat(30));
    session.commit().await.unwrap();

    session.begin(Begin::read_write(Durability::Sync)).await.unwrap();
    assert!(session.get_for_update(NUMBERS, &four, &mut value).await.unwrap());
    assert!(!session.get_for_update(NUMBERS, &three, &mut value).await.unwrap());
    session.put(NUMBERS, &three, &three.repeat(2)).await.unwrap();
    session.insert(NUMBERS, &nine, &nine.repeat(2)).await.unwrap();
    assert!(session.delete(NUMBERS, &four).await.unwrap());
    assert!(!session.delete(NUMBERS, &four).await.unwrap());
    assert!(!session.get_into(NUMBERS, &four, &mut value).await.unwrap());
    assert_eq!(keys(session, (&three, &nine), Forward, 99).await, [3, 6, 8]);
    assert_eq!(keys(session, (&three, &nine), Backward, 99).await, [8, 6, 3]);
    session.rollback().await.unwrap();
    session.rollback().await.unwrap();

    session.begin(Begin::read_write(Durability::Async)).await.unwrap();
    assert!(session.get_into(NUMBERS, &four, &mut value).await.unwrap());
    session.put(NUMBERS, &three, &three.repeat(2)).await.unwrap();
    session.commit().await.unwrap();
    session.begin(Begin::read_write(Durability::Sync)).await.unwrap();
    assert!(session.delete(NUMBERS, &key(8)).await.unwrap());
    session.commit().await.unwrap();
    assert!(session.get_into(NUMBERS, &four, &mut value).await.is_err());
}

async fn look<S: KvSession>(session: &mut S) {
    session.begin(Begin::read_only()).await.unwrap();
    let from = 0_u32.to_be_bytes();
    let to = 12_u32.to_be_bytes();
    assert_eq!(keys(session, (&from, &to), Direction::Forward, 99).await, [0, 2, 3, 4, 6, 10]);
    session.commit().await.unwrap();
}

fn run<E: Engine>(name: &str) {
    for log in [true, false] {
        let settings = settings(name, log);
        for opened in 0..2 {
            let kv = Peer::new(E::open(&settings).unwrap());
            let clients = kv.start(1, move |_, mut session| async move {
                if opened == 0 {
                    fill(&mut session).await;
                    exercise(&mut session).await;
                }
                look(&mut session).await;
                Ok(())
            });
            clients.unwrap().join().unwrap();
            assert!(kv.statistics().unwrap().store_bytes.unwrap() > 0);
            assert!(kv.describe().starts_with(E::NAME));
        }
        std::fs::remove_dir_all(&settings.path).unwrap();
    }
}

/// Clients that add to the same numbers lose no addition, and a client that loses a conflict is
/// told so.
fn count<E: Engine>(name: &str) {
    let settings = settings(&format!("{name}-count"), true);
    let kv = Peer::new(E::open(&settings).unwrap());
    let clients = kv.start(4, |_, mut session| async move {
        let mut value = Vec::new();
        let mut done = 0_u32;
        while done < 200 {
            session.begin(Begin::read_write(Durability::Async)).await?;
            let key = [(done % 3) as u8];
            let step = async {
                session.get_for_update(OTHER, &key, &mut value).await?;
                let old = value.first_chunk().map_or(0, |old| u32::from_be_bytes(*old));
                session.put(OTHER, &key, &(old + 1).to_be_bytes()).await?;
                session.commit().await
            };
            match step.await {
                Ok(()) => done += 1,
                Err(error) if error.kind() == ErrorKind::Conflict => session.rollback().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    });
    clients.unwrap().join().unwrap();
    let sums = kv.start(1, |_, mut session| async move {
        let mut sum = 0;
        session.begin(Begin::read_only()).await?;
        session
            .scan(OTHER, KeyRange::ALL, Direction::Forward, 99, |_, value| {
                sum += u32::from_be_bytes(value.try_into().unwrap());
                ControlFlow::Continue(())
            })
            .await?;
        session.commit().await?;
        Ok(sum)
    });
    assert_eq!(sums.unwrap().join().unwrap(), [800]);
    drop(kv);
    std::fs::remove_dir_all(&settings.path).unwrap();
}

#[test]
fn rocksdb() {
    run::<Rocks>("rocksdb");
    count::<Rocks>("rocksdb");
}

#[test]
fn wiredtiger() {
    run::<WiredTiger>("wiredtiger");
    count::<WiredTiger>("wiredtiger");
}

#[test]
fn lmdb() {
    run::<Lmdb>("lmdb");
    count::<Lmdb>("lmdb");
}

#[test]
fn durable_commits_flush_the_log() {
    let settings = settings("wiredtiger-flushes", true);
    let engine = WiredTiger::open(&settings).unwrap();
    let kv = Peer::new(engine.clone());
    let mut flushes = Vec::new();
    for durability in [Durability::Async, Durability::Sync] {
        let before = engine.log_flushes().unwrap();
        let clients = kv.start(1, move |_, mut session| async move {
            for number in 0..100_u32 {
                session.begin(Begin::read_write(durability)).await?;
                session.put(NUMBERS, &number.to_be_bytes(), b"value").await?;
                session.commit().await?;
            }
            Ok(())
        });
        clients.unwrap().join().unwrap();
        flushes.push(engine.log_flushes().unwrap() - before);
    }
    assert!(flushes[0] < 10 && flushes[1] >= 100, "{flushes:?}");
}

#[test]
fn a_future_of_a_peer_is_ready_at_once() {
    let settings = settings("lmdb-ready", true);
    let kv = Peer::new(Lmdb::open(&settings).unwrap());
    let clients = kv.start(1, |number, mut session| async move {
        // A future that waits would need the runtime that a thread of its own does not have.
        block_on(session.begin(Begin::default()))?;
        block_on(session.commit())?;
        Ok(number)
    });
    assert_eq!(clients.unwrap().join().unwrap(), [0]);
}

#[test]
fn locks_before_the_first_read_do_not_conflict() {
    let settings = settings("rocksdb-locks", true);
    let engine = Rocks::open(&settings).unwrap();
    let (mut early, mut late) = (engine.session().unwrap(), engine.session().unwrap());
    let writes = Start { read_only: false, sync: false };
    let mut value = Vec::new();
    let change = |session: &mut RocksSession, key: &[u8], to: &[u8]| {
        session.begin(writes).unwrap();
        session.put(0, key, to).unwrap();
        session.commit().unwrap();
    };
    // Begun before the other committed, but with its lock and its snapshot taken after it.
    early.begin(writes).unwrap();
    change(&mut late, b"a", b"1");
    early.lock(0, b"a").unwrap();
    assert!(early.get_for_update(0, b"a", &mut value).unwrap());
    assert_eq!(value, b"1");
    early.put(0, b"a", b"2").unwrap();
    // Its snapshot is from before this change.
    change(&mut late, b"b", b"1");
    assert!(!early.get(0, b"b", &mut value).unwrap());
    assert!(matches!(early.put(0, b"b", b"2"), Err(Error::Conflict(_))));
    early.rollback().unwrap();
    late.begin(writes).unwrap();
    assert!(late.get(0, b"a", &mut value).unwrap());
    assert_eq!(value, b"1");
}
