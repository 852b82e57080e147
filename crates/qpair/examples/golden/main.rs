//! Writes golden stores of this version, for `crates/qpair/tests/golden`: run it before a release
//! that changes a format, and keep what it wrote.
//!
//!   golden FOLDER    closed; striped-0, striped-1 and striped-log; killed
//!
//! The program ends by a signal, so that the last stores have changes in their logs.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "an error ends it, with a message")]

mod content;

use std::path::Path;

use qpair::{Options, Result, Store};

use content::{WORDS, large, word};

fn options<P: AsRef<Path>>(members: impl IntoIterator<Item = P>) -> Options {
    Options::striped(members).memory_bytes(16 << 20).workers(1)
}

/// Writes the records of the state `closed`, which the caller's close makes a checkpoint of.
fn fill(store: &Store) -> Result<()> {
    let words = store.table("words")?;
    for i in 0..WORDS {
        let (key, value) = word(i);
        words.put(&key, &value)?;
    }
    for i in (0..WORDS).filter(|i| i % 7 == 3) {
        words.delete(&word(i).0)?;
    }
    let values = store.table("large")?;
    for i in 0..3 {
        values.put(&[i as u8], &large(i))?;
    }
    store.table("empty")?;
    Ok(())
}

/// Makes the changes of the state `killed`, which are in the log alone.
fn change(store: &Store) -> Result<()> {
    let words = store.table("words")?;
    for i in 0..50 {
        words.put(&word(i).0, b"changed")?;
    }
    for i in WORDS..WORDS + 100 {
        let (key, value) = word(i);
        words.put(&key, &value)?;
    }
    for i in 50..60 {
        words.delete(&word(i).0)?;
    }
    let values = store.table("large")?;
    values.put(&[0], &large(3))?;
    values.delete(&[1])?;
    store.table("new")?.put(b"a", b"1")?;
    Ok(())
}

fn main() {
    let folder = std::env::args_os().nth(1).unwrap();
    let path = |name: &str| Path::new(&folder).join(name);
    for name in ["closed", "killed"] {
        let store = options([path(name)]).open().unwrap();
        fill(&store).unwrap();
        store.close().unwrap();
    }
    // Other places, other sizes: two members, pages of 16 KiB, the log on a device of its own.
    let striped =
        || options([path("striped-0"), path("striped-1")]).log_device(path("striped-log"));
    let store = striped().page_size(16 << 10).open().unwrap();
    fill(&store).unwrap();
    store.close().unwrap();
    let striped = striped().open().unwrap();
    change(&striped).unwrap();

    let killed = options([path("killed")]).open().unwrap();
    change(&killed).unwrap();
    std::process::abort();
}
