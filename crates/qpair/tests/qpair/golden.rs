//! Stores that older versions made, in `tests/golden`: this version opens them, finds every record,
//! finds no damage, and changes them; or it refuses them and says what to do. See
//! docs/reference/formats.md.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails should panic, and one that skips should say so"
)]

#[path = "../../examples/golden/content.rs"]
mod content;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use qpair::{ErrorKind, Options, Store};
use tempfile::TempDir;

use content::{WORDS, large, word};

/// The name of a table, and its records.
type Content = (&'static str, Vec<(Vec<u8>, Vec<u8>)>);

/// A golden store: the version that made it, the names of its members, and its log device.
struct Golden {
    directory: TempDir,
    members: Vec<PathBuf>,
    log: Option<PathBuf>,
}

impl Golden {
    /// Unpacks a store; `None` if this file system has no direct I/O.
    fn unpack(version: &str, members: &[&str], log: Option<&str>) -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let tried = Options::new(directory.path().join("tried")).memory_bytes(16 << 20).open();
        if let Err(error) = tried.and_then(Store::close) {
            eprintln!("skipped: no store on this file system: {error}");
            return None;
        }
        let unpack = |name: &str| {
            let packed = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(format!("tests/golden/{version}-{name}.gz"));
            let path = directory.path().join(name);
            let mut gzip = Command::new("gzip");
            gzip.arg("-dc").stdin(File::open(packed).unwrap());
            let status = gzip.stdout(Stdio::from(File::create(&path).unwrap())).status().unwrap();
            assert!(status.success());
            path
        };
        let members = members.iter().map(|name| unpack(name)).collect();
        let log = log.map(unpack);
        Some(Self { directory, members, log })
    }

    fn options(&self) -> Options {
        let options = Options::striped(&self.members).create(false).memory_bytes(16 << 20);
        match &self.log {
            Some(log) => options.workers(1).log_device(log),
            None => options.workers(1),
        }
    }

    /// Opens, judges, changes, closes and checks the store, and does so again.
    fn is_usable(&self, changed: bool) {
        let mut expected = expected(changed);
        for round in [b"one", b"two"] {
            let store = self.options().open().unwrap();
            assert!(content_of(&store) == expected, "{:?} has other records", self.directory);
            // Leaves of the old tree change, split and go, and a value moves to new pages.
            for (name, records) in &mut expected {
                let table = store.table(name).unwrap();
                for (at, (key, value)) in records.iter_mut().enumerate() {
                    if at % 3 == 1 {
                        value.extend_from_slice(round);
                        table.put(key, value).unwrap();
                    }
                }
                if let Some((key, _)) = records.pop() {
                    assert!(table.delete(&key).unwrap());
                }
                for i in 0..300 {
                    let key = [b"~".as_slice(), round, format!("{i:04}").as_bytes()].concat();
                    table.put(&key, &[0; 100]).unwrap();
                    records.push((key, vec![0; 100]));
                }
                records.sort();
            }
            store.close().unwrap();
            // A store can be checked before its first change, which a recovery makes too.
            let store = self.options().open().unwrap();
            let report = store.check(&|_, _| ()).unwrap();
            assert!(report.is_sound() && report.leaked_pages == 0, "{report:?}");
            store.close().unwrap();
        }
    }
}

/// Returns all records of a store, by table, as they must be.
fn expected(changed: bool) -> Vec<Content> {
    let mut words: Vec<_> = (0..WORDS).filter(|i| i % 7 != 3).map(word).collect();
    let mut values: Vec<_> = (0..3).map(|i| (vec![i as u8], large(i))).collect();
    let mut tables = vec![("empty", Vec::new())];
    if changed {
        words.retain(|(key, _)| (0..60).all(|i| word(i).0 != *key));
        words.extend((0..50).map(|i| (word(i).0, b"changed".to_vec())));
        words.extend((WORDS..WORDS + 100).map(word));
        values[0].1 = large(3);
        values.remove(1);
        tables.push(("new", vec![(b"a".to_vec(), b"1".to_vec())]));
    }
    words.sort();
    tables.extend([("large", values), ("words", words)]);
    tables.sort_by_key(|(name, _)| *name);
    tables
}

fn content_of(store: &Store) -> Vec<Content> {
    let known = expected(true);
    let mut names = store.table_names().unwrap();
    names.sort();
    let of = |name: &String| {
        let known = known.iter().find(|(known, _)| known == name);
        let table = store.existing_table(name).unwrap().unwrap();
        let records = table.range(..).unwrap().map(Result::unwrap).collect();
        (known.expect("no such table was made").0, records)
    };
    names.iter().map(of).collect()
}

#[test]
fn stores_of_version_2_without_features() {
    for (name, changed) in [("closed", false), ("killed", true)] {
        let Some(golden) = Golden::unpack("2-first", &[name], None) else { return };
        golden.is_usable(changed);
    }
}

#[test]
fn stores_of_version_2() {
    for (name, changed) in [("closed", false), ("killed", true)] {
        let Some(golden) = Golden::unpack("2", &[name], None) else { return };
        golden.is_usable(changed);
    }
}

#[test]
fn a_striped_store_of_version_2_with_a_log_device() {
    let members = ["striped-0", "striped-1"];
    let Some(golden) = Golden::unpack("2", &members, Some("striped-log")) else { return };
    golden.is_usable(true);
}

/// A store of the first format, which had no log and no checkpoints.
#[test]
fn a_store_of_version_1_is_refused() {
    let Some(golden) = Golden::unpack("1", &["closed"], None) else { return };
    let before = std::fs::read(&golden.members[0]).unwrap();
    for options in
        [golden.options(), golden.options().read_only(true), golden.options().create(true)]
    {
        let error = options.open().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        let said = error.to_string();
        assert!(said.contains("format version 1") && said.contains("version 2"), "{said}");
        assert!(error.way_out().is_some_and(|hint| hint.contains("load its records")), "{error:?}");
    }
    assert_eq!(std::fs::read(&golden.members[0]).unwrap(), before, "it was changed");
}
