//! Stores that are published for other processes to look at.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;

use qpair::{ErrorKind, Options, TransactionOptions, publish_path};

fn ask(socket: &Path) -> std::io::Result<String> {
    let mut line = String::new();
    UnixStream::connect(socket)?.read_to_string(&mut line)?;
    Ok(line)
}

#[test]
fn a_published_store_tells_what_it_does_until_it_is_closed() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // A socket's path is short; the test's directory may not be.
    std::env::set_current_dir(directory.path()).unwrap();
    let socket = Path::new("s.top");
    let options = || Options::new("s").memory_bytes(4 << 20).workers(1);
    // What a killed process left.
    drop(std::os::unix::net::UnixListener::bind(socket).unwrap());
    assert_eq!(publish_path(Path::new("s")), socket);
    let store = options().publish_beside(true).open().unwrap();
    let table = store.table("t").unwrap();
    table.put(b"k", b"v").unwrap();
    let named = TransactionOptions { name: Some("night \"job\"".to_owned()), ..Default::default() };
    let mut open = store.begin_with(&named);
    open.put(&table, b"x", b"y").unwrap();
    let told = ask(socket).unwrap();
    assert!(told.ends_with("}\n") && told.lines().count() == 1, "{told}");
    for word in ["\"commits\":1", "\"name\":\"night \\\"job\\\"\"", "\"locks\":1", "\"active\""] {
        assert!(told.contains(word), "no {word} in {told}");
    }
    // Another store is not published there, and is not opened.
    let other = Options::new("other").memory_bytes(4 << 20).workers(1).publish(socket).open();
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Busy);
    std::fs::write("file", b"").unwrap();
    let other = Options::new("third").memory_bytes(4 << 20).workers(1).publish("file").open();
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Exists);
    open.rollback();
    drop(table);
    store.close().unwrap();
    assert!(!socket.exists());
    // Nobody publishes unasked.
    let store = options().open().unwrap();
    assert!(!socket.exists());
    store.close().unwrap();
}
