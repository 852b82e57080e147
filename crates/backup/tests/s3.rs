//! Backups in buckets of servers on loopback, where these are installed: moto (`pip install
//! moto[server]`) and s3s-fs (`cargo install s3s-fs --features binary`).

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

/// An S3 server on loopback with a bucket.
struct Server {
    name: &'static str,
    command: Vec<String>,
    server: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Server {
    /// Starts each server that is installed.
    fn all() -> Vec<Self> {
        let all = [Self::moto(), Self::s3s()];
        all.into_iter().flatten().collect()
    }

    fn moto() -> Option<Self> {
        let python = std::env::var("QPAIR_MOTO_PYTHON").unwrap_or("python3".to_owned());
        let installed = Command::new(&python).args(["-c", "import moto.server"]).output();
        if !installed.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: moto's server is not installed (pip install 'moto[server]')");
            return None;
        }
        let command = |port: &str, _: &str| {
            [&python, "-m", "moto.server", "-H", "127.0.0.1", "-p", port].map(str::to_owned).into()
        };
        let moto = Self::start("moto", command);
        let mut stream = TcpStream::connect(("127.0.0.1", moto.port)).unwrap();
        // Any signature does for it.
        let request = "PUT /bucket HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\nAuthorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Some(moto)
    }

    /// A server that keeps its objects in files, and checks signatures.
    fn s3s() -> Option<Self> {
        let program = std::env::var("QPAIR_S3S").unwrap_or("s3s-fs".to_owned());
        if Command::new(&program).arg("--version").output().is_err() {
            eprintln!("skipped: s3s-fs is not installed (cargo install s3s-fs --features binary)");
            return None;
        }
        Some(Self::start("s3s-fs", |port, folder| {
            std::fs::create_dir(format!("{folder}/bucket")).unwrap();
            let keys = ["--access-key", "a", "--secret-key", "b"];
            let rest = ["--host", "127.0.0.1", "--port", port, folder];
            let words = [&*program].into_iter().chain(keys).chain(rest);
            words.map(str::to_owned).collect()
        }))
    }

    fn start(name: &'static str, command: impl Fn(&str, &str) -> Vec<String>) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let command = command(&port.to_string(), folder.path().to_str().unwrap());
        let server = Self::run(&command, port);
        Self { name, command, server, port, _folder: folder }
    }

    /// Runs a server until it answers.
    fn run(command: &[String], port: u16) -> Child {
        let mut run = Command::new(&command[0]);
        run.args(&command[1..]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = run.spawn().unwrap();
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(120), "{command:?} does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }

    fn stop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    fn restart(&mut self) {
        self.server = Self::run(&self.command, self.port);
    }

    fn objects(&self) -> Arc<dyn Objects> {
        Arc::new(self.bucket("bucket", "b"))
    }

    fn bucket(&self, bucket: &str, secret: &str) -> S3 {
        let settings = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ACCESS_KEY_ID", "a".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_PROFILE_OF_SOMEONE", "ignored".to_owned()),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        S3::open(bucket, "a/b", settings).unwrap()
    }
}

fn store() -> Store {
    let memory = RamDevice::new(RamOptions { size_bytes: 16 << 20, ..RamOptions::default() });
    let options =
        StoreOptions { format: true, workers: 1, memory_bytes: 4 << 20, ..StoreOptions::default() };
    Store::open(vec![Arc::new(memory.unwrap())], &options).unwrap()
}

fn records(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    store.table("t").unwrap().range(..).unwrap().map(Result::unwrap).collect()
}

/// Restores the newest point into a store in memory, by way of a folder.
fn restored(objects: Arc<dyn Objects>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let received = tempfile::tempdir().unwrap();
    let backup = Backup::open(objects).unwrap();
    let restore = backup.restore(At::Newest, Some(received.path().to_owned())).unwrap();
    let target = store();
    restore.fill(&target, &|_, _| ControlFlow::Continue(())).unwrap();
    let all = records(&target);
    target.close().unwrap();
    all
}

fn options() -> BackupOptions {
    let mut options = BackupOptions::default();
    options.every_ms = 20;
    options.piece_bytes = 20_000;
    options
}

#[test]
fn a_bucket_has_what_the_backup_needs() {
    for server in Server::all() {
        let objects = server.objects();
        assert_eq!(objects.get("none").unwrap(), None);
        assert!(objects.list("x/", "").unwrap().is_empty());
        objects.delete("none").unwrap();
        assert!(objects.put_if_absent("x/1", b"one").unwrap());
        assert!(!objects.put_if_absent("x/1", b"two").unwrap(), "{}", server.name);
        assert_eq!(objects.get("x/1").unwrap().unwrap(), b"one");
        // More than one page of a listing.
        (0..1100).for_each(|i| objects.put(&format!("y/{i:04}"), b"v").unwrap());
        let names = |prefix: &str, after: &str| -> Vec<String> {
            objects.list(prefix, after).unwrap().into_iter().map(|object| object.name).collect()
        };
        assert_eq!(names("y/", "").len(), 1100, "{}", server.name);
        assert_eq!(names("y/", "y/1097"), ["y/1098", "y/1099"]);
        assert_eq!(names("x/", ""), ["x/1"]);
        objects.delete("x/1").unwrap();
        assert_eq!(objects.get("x/1").unwrap(), None);
    }
}

#[test]
fn a_store_is_followed_into_a_bucket_and_restored() {
    for server in Server::all() {
        let store = store();
        let table = store.table("t").unwrap();
        for i in 0..2000u32 {
            table.put(&i.to_be_bytes(), b"before").unwrap();
        }
        let follower = Follower::begin(&store, server.objects(), options()).unwrap();
        for i in 0..300u32 {
            table.put(&i.to_be_bytes(), b"after").unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = follower.stop().unwrap();
        assert!(status.is_restorable && status.costs.puts > 5, "{}: {status:?}", server.name);
        let found = verify(&*server.objects(), &|_, _| ControlFlow::Continue(())).unwrap();
        assert_eq!(found.faults, [""; 0]);
        assert_eq!(restored(server.objects()), records(&store));
        // Two writers: the first one meets the second one's entry.
        let mut first = Shipper::open(&store, server.objects(), options(), now_ms()).unwrap();
        first.finish(&store, now_ms()).unwrap();
        let last = server.objects().list("journal/", "").unwrap().pop().unwrap();
        let next = u64::from_str_radix(last.name.trim_start_matches("journal/"), 16).unwrap() + 1;
        let name = format!("journal/{next:016x}");
        assert!(server.objects().put_if_absent(&name, b"another").unwrap());
        table.put(b"k", b"v").unwrap();
        let fenced = first.finish(&store, now_ms()).unwrap_err();
        assert_eq!(fenced.kind(), ErrorKind::Busy, "{fenced}");
        store.close().unwrap();
    }
}

#[test]
fn a_server_that_goes_away_is_waited_for() {
    // Moto's objects end with it.
    let Some(mut server) = Server::s3s() else { return };
    let store = store();
    let table = store.table("t").unwrap();
    let follower = Follower::begin(&store, server.objects(), options()).unwrap();
    let wait = |until: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !until() {
            assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", follower.failure());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait(&|| follower.status().is_restorable);
    server.stop();
    for i in 0..500u32 {
        table.put(&i.to_be_bytes(), b"unheard").unwrap();
    }
    wait(&|| follower.failure().is_some());
    let age_us = store.metrics().unwrap().backup_unshipped_age_us;
    assert!(age_us > 0, "commits wait to be shipped");
    let gone = follower.failure().unwrap().to_string();
    assert!(gone.contains("Connection refused"), "{gone}");
    server.restart();
    wait(&|| follower.failure().is_none());
    let status = follower.stop().unwrap();
    assert_eq!(status.breaks, 0);
    assert_eq!(restored(server.objects()), records(&store));
    store.close().unwrap();
}

#[test]
fn errors_of_a_bucket_say_what_to_do() {
    for server in Server::all() {
        let none = server.bucket("nobody", "b").list("x/", "").unwrap_err();
        assert_eq!(none.kind(), ErrorKind::Invalid, "{}: {none}", server.name);
        assert!(none.to_string().contains("make the bucket"), "{none}");
        // s3s-fs takes what is put into any bucket.
        if server.name != "s3s-fs" {
            let none = server.bucket("nobody", "b").put_if_absent("x", b"").unwrap_err();
            assert_eq!(none.kind(), ErrorKind::Invalid, "{}: {none}", server.name);
        }
        if server.name != "moto" {
            let wrong = server.bucket("bucket", "wrong").put("x", b"").unwrap_err();
            assert_eq!(wrong.kind(), ErrorKind::Denied, "{}: {wrong}", server.name);
            assert!(wrong.to_string().contains("s3:PutObject"), "{wrong}");
        }
    }
    let settings = [("AWS_ENDPOINT_URL", "http://127.0.0.1:9"), ("AWS_ACCESS_KEY_ID", "a")];
    let settings = settings.into_iter().chain([("AWS_SECRET_ACCESS_KEY", "b")]);
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let nobody = S3::open("bucket", "", settings).unwrap().list("x/", "").unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::Io, "{nobody}");
    assert!(nobody.to_string().contains("AWS_ENDPOINT_URL"), "{nobody}");
}
