//! Stores that are published to other processes.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;

use qpair::published::{ask_for_backup, publish_path};
use qpair::{ErrorKind, Options, TransactionOptions};

fn ask(socket: &Path) -> std::io::Result<String> {
    let mut line = String::new();
    UnixStream::connect(socket)?.read_to_string(&mut line)?;
    Ok(line)
}

#[test]
fn a_published_store_tells_what_it_does_until_it_is_closed() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // The path of a socket is short, but the test's directory may have a long path.
    std::env::set_current_dir(directory.path()).unwrap();
    let socket = Path::new("s.top");
    let options = || Options::new("s").memory_bytes(4 << 20).workers(1);
    // A socket left by a killed process.
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
    // Another store cannot be published there, and is not opened.
    let other = Options::new("other").memory_bytes(4 << 20).workers(1).publish(socket).open();
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Busy);
    std::fs::write("file", b"").unwrap();
    let other = Options::new("third").memory_bytes(4 << 20).workers(1).publish("file").open();
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Exists);
    // The store is not created either.
    assert!(!Path::new("other").exists() && !Path::new("third").exists());
    // Another process requests a backup while records are written.
    let go_on = |_, _| ControlFlow::Continue(());
    let ask_for = |target: &str, force| ask_for_backup(socket, Path::new(target), force, &go_on);
    let report = ask_for("stripe:unit=64KiB:copy1+copy2", false).unwrap().unwrap();
    assert_eq!((report.timestamp, report.page_size), (2, 4096), "the table's making, and a record");
    let stripe = Options::striped(["stripe:unit=64KiB:copy1+copy2"]).memory_bytes(4 << 20);
    let copy = stripe.workers(1).create(false).open().unwrap();
    let copied = copy.existing_table("t").unwrap().unwrap();
    assert_eq!(copied.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    drop(copied);
    copy.close().unwrap();
    assert_eq!(ask_for("stripe:copy1+copy2", false).unwrap_err().kind(), ErrorKind::Exists);
    ask_for("stripe:copy1+copy2", true).unwrap().unwrap();
    assert_eq!(ask_for("s", true).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(ask_for("ram:size=64MiB", true).unwrap_err().kind(), ErrorKind::Invalid);
    let broken_off = |_, _| ControlFlow::Break(());
    let error = ask_for_backup(socket, Path::new("new"), false, &broken_off).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    // A client with an invalid request gets an error, and a client without a request does not block
    // others.
    let mut stream = UnixStream::connect("s.top.ask").unwrap();
    let _idle = UnixStream::connect("s.top.ask").unwrap();
    stream.write_all(b"backup new relative\n").unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("failed "), "{told}");
    open.rollback();
    drop(table);
    store.close().unwrap();
    assert!(!socket.exists() && !Path::new("s.top.ask").exists());
    assert!(ask_for("later", false).unwrap().is_none(), "nobody is there to ask");
    // A store is published only on request.
    let store = options().open().unwrap();
    assert!(!socket.exists());
    store.close().unwrap();
}
