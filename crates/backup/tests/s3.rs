//! Backups in a bucket of moto's server, on loopback: `pip install moto[server]`.

#![cfg(feature = "s3")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]
#![allow(clippy::print_stderr, reason = "a skipped test is reported")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_backup::{At, Backup, BackupOptions, Follower, Objects, S3, Shipper, now_ms, verify};
use qpair_block::{RamDevice, RamOptions};
use qpair_engine::{ErrorKind, Store, StoreOptions};

struct Moto {
    server: Child,
    port: u16,
}

impl Drop for Moto {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

impl Moto {
    /// Starts the server with a bucket; `None` if it is not installed.
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let installed = Command::new("python3").args(["-c", "import moto.server"]).output();
        if !installed.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: moto's server is not installed (pip install 'moto[server]')");
            return None;
        }
        let server = Command::new("python3")
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let moto = Self { server, port };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(120), "moto's server does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // Any signature does for it.
        let request = "PUT /bucket HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\nAuthorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Some(moto)
    }

    fn objects(&self) -> Arc<dyn Objects> {
        let settings = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ACCESS_KEY_ID", "a".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "b".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_PROFILE_OF_SOMEONE", "ignored".to_owned()),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        Arc::new(S3::open("bucket", "a/b", settings).unwrap())
    }
}

fn store() -> Store {
    let memory = RamDevice::new(RamOptions { size_bytes: 16 << 20, ..RamOptions::default() });
    let options =
        StoreOptions { format: true, workers: 1, memory_bytes: 4 << 20, ..StoreOptions::default() };
    Store::open(vec![Arc::new(memory.unwrap())], &options).unwrap()
}

#[test]
fn a_bucket_has_what_the_backup_needs() {
    let Some(moto) = Moto::start() else { return };
    let objects = moto.objects();
    assert_eq!(objects.get("none").unwrap(), None);
    assert!(objects.list("x/", "").unwrap().is_empty());
    objects.delete("none").unwrap();
    assert!(objects.put_if_absent("x/1", b"one").unwrap());
    assert!(!objects.put_if_absent("x/1", b"two").unwrap());
    assert_eq!(objects.get("x/1").unwrap().unwrap(), b"one");
    // More than one page of a listing.
    (0..1100).for_each(|i| objects.put(&format!("y/{i:04}"), b"v").unwrap());
    let names = |prefix: &str, after: &str| -> Vec<String> {
        objects.list(prefix, after).unwrap().into_iter().map(|object| object.name).collect()
    };
    assert_eq!(names("y/", "").len(), 1100);
    assert_eq!(names("y/", "y/1097"), ["y/1098", "y/1099"]);
    assert_eq!(names("x/", ""), ["x/1"]);
    objects.delete("x/1").unwrap();
    assert_eq!(objects.get("x/1").unwrap(), None);
}

#[test]
fn a_store_is_followed_into_a_bucket_and_restored() {
    let Some(moto) = Moto::start() else { return };
    let store = store();
    let table = store.table("t").unwrap();
    (0..2000u32).for_each(|i| table.put(&i.to_be_bytes(), b"before").unwrap());
    let mut options = BackupOptions::default();
    options.every_ms = 20;
    options.piece_bytes = 20_000;
    let follower = Follower::begin(&store, moto.objects(), options.clone()).unwrap();
    for i in 0..300u32 {
        table.put(&i.to_be_bytes(), b"after").unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    let status = follower.stop().unwrap();
    assert!(status.is_restorable && status.costs.puts > 5, "{status:?}");
    let found = verify(&*moto.objects(), &|_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(found.faults, [""; 0]);
    let received = tempfile::tempdir().unwrap();
    let backup = Backup::open(moto.objects()).unwrap();
    let restore = backup.restore(At::Newest, Some(received.path().to_owned())).unwrap();
    let target = self::store();
    restore.fill(&target, &|_, _| ControlFlow::Continue(())).unwrap();
    let all = |store: &Store| -> Vec<_> {
        store.table("t").unwrap().range(..).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(all(&target), all(&store));
    target.close().unwrap();
    // Two writers: the first one meets the second one's entry.
    let mut first = Shipper::open(&store, moto.objects(), options.clone(), now_ms()).unwrap();
    first.finish(&store, now_ms()).unwrap();
    let second = Backup::open(moto.objects()).unwrap();
    let number = moto.objects().list("journal/", "").unwrap().len() as u64;
    let last = moto.objects().list("journal/", "").unwrap().pop().unwrap();
    let next = u64::from_str_radix(last.name.trim_start_matches("journal/"), 16).unwrap() + 1;
    assert!(number > 0 && !second.points().is_empty());
    assert!(moto.objects().put_if_absent(&format!("journal/{next:016x}"), b"another").unwrap());
    table.put(b"k", b"v").unwrap();
    let fenced = first.finish(&store, now_ms()).unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Busy, "{fenced}");
    store.close().unwrap();
}
