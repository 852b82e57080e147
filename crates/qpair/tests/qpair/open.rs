//! Opening stores by name: what is created, refused, and left behind.
//!
//! Long, because one test for each way to open a store.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails should panic, and one that skips should say so"
)]

use std::collections::HashSet;
use std::sync::Arc;

use qpair::{ErrorKind, Interface, Options, Store};
use qpair_block::BlockDevice;
use qpair_block::time::SimClock;
use qpair_sim_block::{SimDevice, SimOptions, SimPower};
use tempfile::TempDir;

fn directory() -> TempDir {
    // The build directory is on a file system with direct I/O, which /tmp may not be.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Returns options for small stores.
fn small(options: Options) -> Options {
    options.memory_bytes(4 << 20).workers(1)
}

fn kind(outcome: qpair::Result<Store>) -> ErrorKind {
    outcome.expect_err("opening it should fail").kind()
}

#[test]
fn makes_closes_and_opens_again() {
    let directory = directory();
    let path = directory.path().join("s");
    assert_eq!(kind(small(Options::new(&path)).create(false).open()), ErrorKind::NotFound);
    assert_eq!(kind(small(Options::new(&path)).read_only(true).open()), ErrorKind::NotFound);
    assert!(!path.exists());
    let (store, report) = small(Options::new(&path)).page_size(8192).open_with_report().unwrap();
    assert!(report.created && report.not_writable.is_none(), "{report:?}");
    store.table("t").unwrap().put(b"k", b"v").unwrap();
    store.close().unwrap();
    let (store, report) = small(Options::new(&path)).read_only(true).open_with_report().unwrap();
    assert!(!report.created && store.is_read_only());
    assert_eq!(store.report().page_size, 8192);
    let table = store.existing_table("t").unwrap().unwrap();
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
    assert_eq!(table.put(b"k", b"w").unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_store_that_cannot_be_made_leaves_no_file() {
    let directory = directory();
    let path = directory.path().join("s");
    assert_eq!(kind(small(Options::new(&path)).page_size(1000).open()), ErrorKind::Invalid);
    assert_eq!(kind(Options::new(&path).memory_bytes(1000).open()), ErrorKind::NoMemory);
    let other = directory.path().join("no/such/folder");
    assert_eq!(kind(small(Options::striped([&path, &other])).open()), ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn an_interface_by_name_is_the_one_used() {
    let directory = directory();
    let path = directory.path().join("s");
    for interface in Interface::CONCRETE {
        match small(Options::new(&path)).io(interface).open_with_report() {
            Ok((store, report)) => {
                assert_eq!(report.interface, interface.name());
                assert!(report.passed_over.is_empty());
                store.close().unwrap();
            }
            Err(error) => eprintln!("skipped {interface}: {error}"),
        }
    }
    let (_store, report) = small(Options::new(&path)).open_with_report().unwrap();
    let first = Interface::CONCRETE[report.passed_over.len()];
    assert_eq!(report.interface, first.name(), "{report:?}");
}

#[test]
fn a_stripe_by_members_or_as_one_name() {
    let directory = directory();
    let paths = ["a", "b", "c"].map(|name| directory.path().join(name));
    let [a, b, _] = &paths;
    let open = |options: Options| small(options).io(Interface::Posix).open();
    let store = open(Options::striped(&paths).stripe_unit_bytes(4096)).unwrap();
    store.table("t").unwrap().put(b"k", b"v").unwrap();
    store.close().unwrap();
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    let store = open(Options::new(format!("stripe:{}", names.join("+")))).unwrap();
    assert_eq!(store.report().stripe_unit_bytes, 4096);
    store.close().unwrap();
    assert_eq!(kind(open(Options::striped([a, b]))), ErrorKind::Member);
    assert_eq!(kind(open(Options::striped(paths.iter().rev()))), ErrorKind::Member);
    std::fs::remove_file(b).unwrap();
    assert_eq!(kind(open(Options::striped(&paths))), ErrorKind::Member);
    assert!(!b.exists(), "a lost member was made anew");
}

#[test]
fn never_overwrites_without_force() {
    let directory = directory();
    let path = directory.path().join("s");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    assert_eq!(kind(small(Options::new(&path)).open()), ErrorKind::NotAStore);
    assert_eq!(kind(small(Options::new(&path)).format(true).open()), ErrorKind::Exists);
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
    small(Options::new(&path)).format(true).force(true).open().unwrap().close().unwrap();
    small(Options::new(&path)).open().unwrap().close().unwrap();
}

/// Two callers find no store, and both create one: the second opens the store that the first has
/// created.
#[test]
fn a_store_that_two_make() {
    let directory = directory();
    for round in 0..20 {
        let path = directory.path().join(round.to_string());
        let make = |key: &'static [u8]| {
            let path = path.clone();
            move || match small(Options::new(&path)).open() {
                Ok(store) => {
                    store.table("t")?.put(key, b"")?;
                    store.close().map(|()| 1)
                }
                // The other process was slow.
                Err(error) if error.kind() == ErrorKind::Busy => Ok(0),
                Err(error) => Err(error),
            }
        };
        let other = std::thread::spawn(make(b"a"));
        let made = make(b"b")().unwrap() + other.join().unwrap().unwrap();
        let store = small(Options::new(&path)).open().unwrap();
        assert_eq!(store.table("t").unwrap().range(..).unwrap().count(), made);
    }
}

#[test]
fn one_writer_or_many_readers() {
    let directory = directory();
    let path = directory.path().join("s");
    let writer = small(Options::new(&path)).open().unwrap();
    assert_eq!(kind(small(Options::new(&path)).open()), ErrorKind::Busy);
    // A reader beside the writer, which does not keep it from closing.
    let (reader, report) = small(Options::new(&path)).read_only(true).open_with_report().unwrap();
    assert!(report.beside_writer && reader.is_read_only());
    writer.close().unwrap();
    drop(reader);
    let readers = [(); 2].map(|()| small(Options::new(&path)).read_only(true).open().unwrap());
    assert_eq!(kind(small(Options::new(&path)).open()), ErrorKind::Busy);
    drop(readers);
}

#[test]
fn stores_without_a_file() {
    let store = small(Options::new("delay:read_us=10:ram:size=8MiB,growable=true")).open().unwrap();
    let table = store.table("t").unwrap();
    table.put(b"k", b"v").unwrap();
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
    store.close().unwrap();
    assert_eq!(kind(Options::new("odd:name").open()), ErrorKind::Invalid);
    assert_eq!(kind(Options::striped::<&str>([]).open()), ErrorKind::Invalid);
    assert!(Options::new("s").memory("12 parsecs").is_err());
}

/// A build without drivers reports that, and what to do, before it touches files beside a drive.
#[cfg(not(feature = "drivers"))]
#[test]
fn names_that_take_drivers_are_refused() {
    let directory = directory();
    let file = directory.path().join("s");
    for name in ["nvme:0000:3b:00.0", "softnvme:size=64MiB", "scsi:soft/0", "vhost-user:/run/x"] {
        let refused = |options: Options| {
            let error = options.open().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("features = [\"drivers\"]"), "{error}");
        };
        refused(Options::new(name));
        refused(Options::new(name).create(false));
        refused(Options::striped([file.as_path(), name.as_ref()]));
        refused(Options::new(&file).log_device(name));
        assert!(!file.exists());
    }
}

/// Callers with the same drivers share one host; other drivers have another host.
#[cfg(feature = "drivers")]
#[test]
fn stores_share_the_drivers_that_they_are_given() {
    let (drivers, host) = (qpair::Drivers::new(), "soft:size=16MiB,serial=given");
    // The disk keeps its content as long as its host exists.
    let held = drivers.scsi_host(host).unwrap();
    let options = || small(Options::new(format!("scsi:{host}/0")));
    options().drivers(&drivers).open().unwrap().close().unwrap();
    assert_eq!(kind(options().drivers(&drivers).open()), ErrorKind::Exists);
    let store = options().open().unwrap();
    assert_eq!(store.table_names().unwrap(), Vec::<String>::new());
    store.close().unwrap();
    drop(held);
}

/// A regression: a process that was stopped in the first milliseconds of a store left a file that
/// no process could open, or create a store in.
#[test]
fn what_the_making_of_a_store_left_is_made_one() {
    let directory = directory();
    let whole = directory.path().join("whole");
    let store = small(Options::new(&whole)).open().unwrap();
    let new_bytes = whole.metadata().unwrap().len();
    store.close().unwrap();
    let path = directory.path().join("s");
    let open = || small(Options::new(&path)).open_with_report();

    // Before the file has its size, and before there is a superblock.
    for size_bytes in [0, new_bytes] {
        std::fs::File::create(&path).unwrap().set_len(size_bytes).unwrap();
        assert_eq!(kind(small(Options::new(&path)).create(false).open()), ErrorKind::NotAStore);
        assert_eq!(kind(small(Options::new(&path)).read_only(true).open()), ErrorKind::NotAStore);
        let (store, report) = open().unwrap();
        assert!(report.created, "{size_bytes}");
        store.table("t").unwrap().put(b"k", b"v").unwrap();
        store.close().unwrap();
        let (store, report) = open().unwrap();
        assert!(!report.created);
        assert_eq!(store.table("t").unwrap().get(b"k").unwrap().unwrap(), b"v");
        store.close().unwrap();
    }
    // Before the first checkpoint: the superblock says that the store is unfinished.
    let device = qpair_kernel::open(&qpair_kernel::FileOptions::new(&path), Interface::Posix);
    let making = qpair::unstable::StoreOptions {
        format: true,
        whole_when_closed: true,
        memory_bytes: 4 << 20,
        workers: 1,
        ..Default::default()
    };
    let store = Store::open(vec![std::sync::Arc::new(device.unwrap())], &making).unwrap();
    let killed = directory.path().join("killed");
    std::fs::copy(&path, &killed).unwrap();
    store.close().unwrap();
    std::fs::rename(killed, &path).unwrap();
    assert_eq!(kind(small(Options::new(&path)).create(false).open()), ErrorKind::NotAStore);
    assert!(open().unwrap().1.created);

    // Content that may belong to another owner is not touched: zeroes of another size, or any other
    // content.
    for content in [vec![0; new_bytes as usize + 4096], vec![7; new_bytes as usize]] {
        std::fs::write(&path, &content).unwrap();
        assert_eq!(kind(open().map(|(store, _)| store)), ErrorKind::NotAStore);
        assert!(std::fs::read(&path).unwrap() == content);
    }
}

/// The size of new files for members and log devices, in bytes.
const NEW_BYTES: u64 = (64 << 10) + (2 << 20);

/// Creates a store with two members and a log device, cuts the power after `changes` writes and
/// flushes, and returns the content that the devices have then. The first value says whether the
/// creation was cut.
fn cut_while_made(seed: u64, changes: u64) -> (bool, Vec<Vec<u8>>) {
    cut_while_made_over(vec![vec![0; NEW_BYTES as usize]; 3], seed, changes)
}

/// As above, on devices with the remains of an earlier creation.
fn cut_while_made_over(contents: Vec<Vec<u8>>, seed: u64, changes: u64) -> (bool, Vec<Vec<u8>>) {
    cut_while_made_of(2, contents, seed, changes)
}

/// As above, with this many members. A further device is for the log.
fn cut_while_made_of(
    members: usize,
    contents: Vec<Vec<u8>>,
    seed: u64,
    changes: u64,
) -> (bool, Vec<Vec<u8>>) {
    let members = members.min(contents.len());
    let clock = SimClock::new();
    let power = SimPower::new(&clock);
    let devices: Vec<SimDevice> = (seed..)
        .zip(contents)
        .map(|(seed, content)| {
            let options = SimOptions { power: power.clone(), ..SimOptions::new(seed, &clock) };
            SimDevice::over(options, content).unwrap()
        })
        .collect();
    let member = |device: usize| -> Arc<dyn BlockDevice> { Arc::new(devices[device].clone()) };
    let options = qpair::unstable::StoreOptions {
        format: true,
        memory_bytes: 4 << 20,
        workers: 1,
        log_place: match devices.len() > members {
            true => qpair::unstable::LogPlace::Device(member(members)),
            false => qpair::unstable::LogPlace::Store,
        },
        runtime: qpair_engine::Runtime::Stepped { seed, clock },
        ..Default::default()
    };
    power.cut_at_change(changes);
    let made = Store::open((0..members).map(member).collect(), &options);
    if let Ok(store) = made {
        store.crash();
    }
    (power.is_cut(), devices.iter().map(SimDevice::content).collect())
}

/// A regression: a store with a log device was killed while it was created, created again, and
/// killed again before the log device had a superblock of the second creation. The superblock of
/// the first creation was taken for that of another store's log, and no process could ever create a
/// store there.
#[test]
fn a_store_of_parts_is_made_however_often_its_making_was_cut() {
    let directory = directory();
    let paths = ["s0", "s1", "log"].map(|name| directory.path().join(name));
    let mut random = fastrand::Rng::with_seed(35);
    let finish = |contents: &[Vec<u8>], what: &str| {
        for (path, content) in paths.iter().zip(contents) {
            std::fs::write(path, content).unwrap();
        }
        let options = Options::striped([&paths[0], &paths[1]]).log_device(&paths[2]);
        let store = small(options).open().unwrap_or_else(|error| panic!("{what}: {error}"));
        store.table("t").unwrap().put(b"k", b"v").unwrap();
        store.close().unwrap();
    };
    for round in 0..30 {
        let (mut what, mut contents) = (Vec::new(), vec![vec![0; NEW_BYTES as usize]; 3]);
        for _ in 0..random.u32(2..5) {
            let (seed, changes) = (random.u64(..1 << 32), random.u64(1..20));
            let (is_cut, left) = cut_while_made_over(contents.clone(), seed, changes);
            if is_cut {
                what.push(changes);
                contents = left;
            }
        }
        finish(&contents, &format!("round {round}, cut at changes {what:?}"));
    }
    // Parts of two different creations.
    for (members, log) in (2..20).step_by(3).flat_map(|at| [(at, 12), (12, at)]) {
        let (is_cut, mut contents) = cut_while_made(1, members);
        let (is_other_cut, others) = cut_while_made(2, log);
        if is_cut && is_other_cut {
            contents[2] = others[2].clone();
            finish(&contents, &format!("members cut at change {members}, log device at {log}"));
        }
    }
}

/// The content of the files of two members and a log device; `None` for a file that does not exist.
type Parts = Vec<Option<Vec<u8>>>;

/// The distinguishing features of the parts of an unfinished store, as the next process sees them:
/// the size of each file, which superblocks it has, and whether it has any other content.
type Shape = Vec<Option<(usize, Vec<[u8; 8]>, bool)>>;

fn shape(parts: &Parts) -> Shape {
    let of = |content: &Vec<u8>| {
        let any = |range: std::ops::Range<usize>| {
            let range = range.start.min(content.len())..range.end.min(content.len());
            content[range].iter().any(|byte| *byte != 0)
        };
        // Compare the magic number and the features; the rest is random numbers and counters.
        let slots = qpair_engine::SUPERBLOCK_OFFSETS.map(|at| at as usize);
        let head = |at: usize| [at, at + 16].map(|at| content.get(at..at + 8));
        let heads = slots
            .into_iter()
            .flat_map(head)
            .map(|word| word.map_or([0; 8], |word| word.try_into().unwrap()));
        (content.len(), heads.collect(), any(64 << 10..usize::MAX))
    };
    parts.iter().map(|content| content.as_ref().map(of)).collect()
}

/// Collects in `left` the states that a process leaves if it is killed after any of its steps while
/// it creates a store of these parts. The steps from the superblocks on are taken only once for all
/// parts of the same shape; `begun` records these shapes.
fn cuts_of_a_making(parts: &Parts, begun: &mut HashSet<Shape>, left: &mut Vec<Parts>) {
    const ROOM_BYTES: usize = (64 << 10) + (1 << 20);
    let mut parts = parts.clone();
    // Files are created one after the other, at first without a size.
    for file in 0..parts.len() {
        if parts[file].is_none() {
            for size_bytes in [0, NEW_BYTES as usize] {
                parts[file] = Some(vec![0; size_bytes]);
                left.push(parts.clone());
            }
        }
    }
    // Files that are too small are extended, the log device first.
    for file in (0..parts.len()).rev() {
        let content = parts[file].as_mut().unwrap();
        if content.len() < ROOM_BYTES {
            content.resize(ROOM_BYTES, 0);
            left.push(parts.clone());
        }
    }
    if !begun.insert(shape(&parts)) {
        return;
    }
    for changes in 1.. {
        let contents = parts.iter().flatten().cloned().collect();
        let (is_cut, contents) = cut_while_made_over(contents, 1, changes);
        if !is_cut {
            return;
        }
        left.push(contents.into_iter().map(Some).collect());
    }
}

/// A regression: after two killed processes, an empty file had the size that the second one had
/// given it, and no process recognized it as part of an unfinished store ("only zeroes"). This test
/// derives all states that any number of kills can leave, each from the one before.
#[test]
fn whatever_kills_leave_of_a_making_is_made_a_store() {
    let directory = directory();
    let paths = ["s0", "s1", "log"].map(|name| directory.path().join(name));
    for count in [1, 2, 3] {
        let paths = &paths[..count];
        let finish = |parts: &Parts| {
            for (path, content) in paths.iter().zip(parts) {
                let _ = std::fs::remove_file(path);
                if let Some(content) = content {
                    std::fs::write(path, content).unwrap();
                }
            }
            let options = match paths {
                [members @ .., log] if count == 3 => Options::striped(members).log_device(log),
                members => Options::striped(members),
            };
            let (store, report) = small(options).open_with_report()?;
            store.table("t")?.put(b"k", b"v")?;
            store.close().map(|()| report.created)
        };
        let (mut known, mut begun) = (HashSet::new(), HashSet::new());
        let mut next = vec![vec![None; count]];
        let mut refused = Vec::new();
        while let Some(parts) = next.pop() {
            if known.insert(shape(&parts)) {
                match finish(&parts) {
                    // The store was complete, so none is created there.
                    Ok(false) => continue,
                    Ok(true) => {}
                    Err(error) => refused.push((shape(&parts), error)),
                }
                cuts_of_a_making(&parts, &mut begun, &mut next);
            }
        }
        let kinds = refused.len();
        assert!(refused.is_empty(), "{kinds} of {} states: {:?}", known.len(), refused[0]);
        assert!(known.len() > [0, 5, 20, 60][count], "{}", known.len());
    }
}

/// Zeroes of any size up to that of a new file count as part of a creation only beside a superblock
/// that says that a store is being created. A file with any other byte does not count.
#[test]
fn zeroes_beside_what_is_being_made_are_made_a_store() {
    let directory = directory();
    let paths = ["s0", "s1"].map(|name| directory.path().join(name));
    let open = || small(Options::striped(&paths)).open();
    let mut cuts =
        (1..20).map(|at| cut_while_made_over(vec![vec![0; NEW_BYTES as usize]; 2], 1, at).1);
    let cut = cuts.find(|cut| cut[1].starts_with(b"qpair") && cut[0].iter().all(|byte| *byte == 0));
    let cut = cut.unwrap();
    let zeroes = |size_bytes: u64| vec![0; size_bytes as usize];
    let with_byte_at = |at: u64| {
        let mut content = zeroes(NEW_BYTES);
        content[at as usize] = 1;
        content
    };
    for size_bytes in [512, 4096, 64 << 10, 1 << 20, (1 << 20) + 4096, 2 << 20] {
        std::fs::write(&paths[0], zeroes(size_bytes)).unwrap();
        std::fs::write(&paths[1], &cut[1]).unwrap();
        open().unwrap_or_else(|error| panic!("{size_bytes}: {error}")).close().unwrap();
    }
    let not_ours = [
        (zeroes(NEW_BYTES + 4096), &cut[1]),
        // A byte that no other check of a file reaches.
        (with_byte_at((1 << 20) + 4096), &cut[1]),
        (with_byte_at(100), &cut[1]),
        (with_byte_at(NEW_BYTES - 1), &cut[1]),
        (with_byte_at((1 << 20) + 4096), &zeroes(NEW_BYTES)),
        (zeroes(1 << 20), &zeroes(NEW_BYTES)),
        (zeroes(NEW_BYTES), &zeroes(1 << 20)),
    ];
    for (case, (first, second)) in not_ours.iter().enumerate() {
        std::fs::write(&paths[0], first).unwrap();
        std::fs::write(&paths[1], second).unwrap();
        assert_eq!(kind(open()), ErrorKind::NotAStore, "{case}");
        assert!(std::fs::read(&paths[0]).unwrap() == *first, "{case}");
        assert!(std::fs::read(&paths[1]).unwrap() == **second, "{case}");
    }
}

/// Wherever the creation of a store was cut, a caller that may create one there completes it, with
/// any parts. A caller that may not gets an error.
#[test]
fn a_store_of_parts_is_made_wherever_its_making_was_cut() {
    let directory = directory();
    let paths = ["s0", "s1", "log"].map(|name| directory.path().join(name));
    let of = |create: bool| {
        let options = Options::striped([&paths[0], &paths[1]]).log_device(&paths[2]);
        small(options).create(create).open_with_report()
    };
    let check = |what: &str| {
        let refused = of(false).map(|(store, _)| store.close().unwrap()).err();
        let (store, report) = of(true).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(report.created, refused.is_some(), "{what}: {refused:?}");
        assert_eq!(store.table_names().unwrap(), Vec::<String>::new(), "{what}");
        store.table("t").unwrap().put(b"k", b"v").unwrap();
        store.close().unwrap();
        let (store, report) = of(false).unwrap();
        assert!(!report.created);
        assert_eq!(store.existing_table("t").unwrap().unwrap().get(b"k").unwrap().unwrap(), b"v");
        store.close().unwrap();
    };
    let mut cuts = 0;
    for seed in 0..4 {
        for changes in 1.. {
            let (is_cut, contents) = cut_while_made(seed * 10, changes);
            for (path, content) in paths.iter().zip(contents) {
                std::fs::write(path, content).unwrap();
            }
            check(&format!("seed {seed}, cut at change {changes}"));
            if !is_cut {
                assert!(changes > 10, "{changes}");
                break;
            }
            cuts += 1;
        }
    }
    assert!(cuts > 40, "{cuts}");
    // Before there are superblocks, files are missing, empty, or have their initial size.
    let new_bytes = (64 << 10) + (2 << 20);
    for case in 0..27u32 {
        for (path, digit) in paths.iter().zip([1, 3, 9]) {
            let _ = std::fs::remove_file(path);
            match case / digit % 3 {
                0 => {}
                1 => drop(std::fs::File::create(path).unwrap()),
                _ => std::fs::File::create(path).unwrap().set_len(new_bytes).unwrap(),
            }
        }
        check(&format!("files {case}"));
    }
}

/// A part that belongs to another store is never made part of a new one, even if the other parts
/// are blank.
#[test]
fn parts_of_other_stores_are_left_alone() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    let of = |members: [&str; 2], log: &str| {
        small(Options::striped(members.map(path)).log_device(path(log))).open()
    };
    of(["a0", "a1"], "alog").unwrap().close().unwrap();
    let content = |name: &str| std::fs::read(path(name)).unwrap();
    let before = ["a0", "a1", "alog"].map(content);
    for (members, log) in [
        (["new", "a1"], "new-log"),
        (["new", "new-too"], "alog"),
        (["a0", "new"], "alog"),
        (["new", "a0"], "alog"),
    ] {
        let error = of(members, log).expect_err("it is another store's");
        assert!(matches!(error.kind(), ErrorKind::Member | ErrorKind::Exists), "{error}");
        assert!(["new", "new-too", "new-log"].iter().all(|name| !path(name).exists()));
    }
    assert!(["a0", "a1", "alog"].map(content) == before);
    of(["a0", "a1"], "alog").unwrap().close().unwrap();
}

/// A regression: a store with small pages on three files, on a file system that does not report its
/// alignment, could not be opened after a crash ("reading the log: Invalid argument"). The stripe
/// split reads of the log at multiples of the page, which may not have the alignment that the file
/// system requires.
#[test]
fn small_pages_on_three_members_after_a_kill() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: no /dev/shm");
    };
    for page_size in [512, 1024] {
        let path = |name: &str| directory.path().join(format!("{name}{page_size}"));
        let of = |names: [&str; 3]| small(Options::striped(names.map(path))).page_size(page_size);
        let store = match of(["a", "b", "c"]).open() {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return eprintln!("skipped: {error}");
            }
            opened => opened.unwrap(),
        };
        let table = store.table("t").unwrap();
        let keys = || (0..2000u32).map(u32::to_be_bytes);
        for key in keys() {
            table.put(&key, &[7; 100]).unwrap();
        }
        for (name, killed) in [("a", "x"), ("b", "y"), ("c", "z")] {
            std::fs::copy(path(name), path(killed)).unwrap();
        }
        drop(table);
        store.close().unwrap();
        let store = of(["x", "y", "z"]).create(false).open().unwrap();
        let table = store.existing_table("t").unwrap().unwrap();
        assert!(keys().all(|key| table.get(&key).unwrap().is_some_and(|value| value == [7; 100])));
        drop(table);
        store.close().unwrap();
    }
}

/// A file that is removed while its store is open can be used until the store is closed. A caller
/// that makes a checkpoint or closes the store gets an error.
#[test]
fn a_file_that_is_removed_while_it_is_open() {
    let directory = directory();
    let paths = ["s0", "s1", "log"].map(|name| directory.path().join(name));
    for removed in &paths {
        let options = Options::striped([&paths[0], &paths[1]]).log_device(&paths[2]);
        let store = small(options).open().unwrap();
        let table = store.table("t").unwrap();
        table.put(b"k", b"v").unwrap();
        store.checkpoint().unwrap();
        std::fs::remove_file(removed).unwrap();
        table.put(b"k", b"w").unwrap();
        drop(table);
        for outcome in [store.checkpoint(), store.close()] {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            let name = removed.display().to_string();
            assert!(error.to_string().contains(&format!("{name} was removed")), "{error}");
        }
        paths
            .iter()
            .filter(|path| path.exists())
            .for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

/// A store over several polled drives makes no system call for a lookup that misses memory. A
/// regression: a worker has an event by which others wake it, and a thread over several drives
/// slept whenever there was one. Each lookup took 1.7 calls, where one drive needed none.
#[cfg(feature = "drivers")]
#[test]
fn a_store_on_polled_drives_makes_no_calls_for_a_lookup() {
    const KEYS: u32 = 16_000;
    const CLIENTS: u32 = 32;
    const LOOKUPS: u32 = 250;
    let drive = "softnvme:size=64MiB,profile=optane";
    for drives in [1, 2, 8] {
        let name = format!("stripe:{}", vec![drive; drives].join("+"));
        let store = Options::new(name).memory_bytes(4 << 20).workers(2).open().unwrap();
        let table = store.table("t").unwrap();
        let load = table.task();
        let loaded = store.spawn(move || async move {
            for key in 0..KEYS {
                load.put(&key.to_be_bytes(), &[7; 1000]).await?;
            }
            Ok::<_, qpair::Error>(())
        });
        loaded.join().unwrap().unwrap();
        let counts = || store.statistics().unwrap().device;
        let before = counts();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let table = table.task();
                store.spawn(move || async move {
                    let mut random = fastrand::Rng::with_seed(client.into());
                    for _ in 0..LOOKUPS {
                        let key = random.u32(0..KEYS).to_be_bytes();
                        assert!(table.get(&key).await.unwrap().is_some());
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        let after = counts();
        let lookups = u64::from(CLIENTS * LOOKUPS);
        let (reads, calls) = (after.reads - before.reads, after.system_calls - before.system_calls);
        assert!(reads > lookups / 2, "{drives} drives: {reads} reads for {lookups} lookups");
        // A few calls are made while a worker is idle: before its clients start, and after they
        // end.
        assert!(calls < lookups / 50, "{drives} drives: {calls} calls for {lookups} lookups");
    }
}
