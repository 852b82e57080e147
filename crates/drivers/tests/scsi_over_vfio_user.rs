//! The mpt3sas driver over a socket, on a soft HBA that another thread serves: every block device's suite. The HBA is strict.

#![allow(clippy::print_stdout, reason = "reports are for those who run tests with --nocapture")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use qpair_conformance::{Options, run};
use qpair_softdev::{SoftHba, SoftHbaOptions};
use qpair_vfio_user::{Host, Idle, Server, ServerOptions};

/// An HBA on a thread of its own; ends when dropped.
struct Served {
    card: Arc<SoftHba>,
    name: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new(text: &str) -> Self {
        let folder =
            tempfile::Builder::new().prefix("vh").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("cntrl");
        let card = SoftHba::new(SoftHbaOptions::parse(text).unwrap()).unwrap();
        let server = Server::bind(&path, card.clone(), ServerOptions::default()).unwrap();
        let mut host = Host::new(vec![(card.clone(), server)], Idle::default());
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                while !stop.load(Ordering::Relaxed) {
                    host.run_for(Duration::from_millis(1));
                }
            }
        });
        let name = format!("vfio-user:{}/0", path.display());
        Self { card, name, stop, thread: Some(thread), _folder: folder }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn pass(text: &str) {
    // The suite opens a device for each check, and may keep the one before: each is behind an HBA of its own. One that no check has any more
    // ends, with its thread.
    let (all, violations) = (Mutex::new(VecDeque::new()), Mutex::new(Vec::new()));
    let end = |served: Served| {
        violations.lock().unwrap().extend(served.card.violations().told);
    };
    let open = || {
        let served = Served::new(text);
        let device = qpair_drivers::open("scsi", &served.name).unwrap();
        let mut all = all.lock().unwrap();
        all.push_back(served);
        if all.len() > 2 {
            all.pop_front().into_iter().for_each(end);
        }
        device
    };
    let report = run(open, Options::default());
    println!("{report}");
    report.assert_passed();
    let skipped: Vec<&str> = report.skipped().map(|(name, _)| name).collect();
    assert_eq!(skipped, ["grow", "read_only_refuses_writes"], "{report}");
    all.into_inner().unwrap().into_iter().for_each(end);
    assert_eq!(violations.into_inner().unwrap(), Vec::<String>::new());
}

#[test]
fn blocks_of_512_and_4096() {
    pass("size=8MiB,block=512,queues=8,strict=on");
    pass("size=8MiB,block=4096,queues=8,strict=on");
}

#[test]
fn with_a_volatile_write_cache() {
    pass("size=8MiB,block=512,cache=on,queues=8,strict=on");
}
