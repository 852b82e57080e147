//! Tests the mpt3sas driver over a socket, on a strict soft HBA that another thread serves, with
//! the conformance suite.

#![allow(clippy::print_stdout, reason = "reports are for those who run tests with --nocapture")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use qpair_block::{Arena, ArenaOptions, ChannelOptions, Request, WaitOptions};
use qpair_conformance::{Options, run};
use qpair_drivers::Drivers;
use qpair_softdev::{SoftHba, SoftHbaOptions};
use qpair_vfio_user::{Host, Idle, Server, ServerOptions};

/// An HBA on a separate thread, which ends when this is dropped.
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
    pass_by("", text);
}

fn pass_by(options: &str, text: &str) {
    // The suite opens a device for each check, and may keep the previous one, so each device is
    // behind its own HBA. An unused HBA ends with its thread.
    let (all, violations) = (Mutex::new(VecDeque::new()), Mutex::new(Vec::new()));
    let end = |served: Served| {
        violations.lock().unwrap().extend(served.card.violations().told);
    };
    let open = || {
        let served = Served::new(text);
        let device = Drivers::new().open("scsi", &format!("{options}{}", served.name)).unwrap();
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

/// A sleeping channel passes the suite. Each single answer interrupts once, and polling channels
/// are not interrupted.
#[test]
fn asleep_for_interrupts() {
    pass_by("wait=sleep:", "size=8MiB,queues=8,strict=on");
    const REQUESTS: u64 = 64;
    for (options, interrupts) in [("wait=sleep:", REQUESTS), ("wait=poll:", 0)] {
        let served = Served::new("size=8MiB,queues=8,strict=on");
        let device = Drivers::new().open("scsi", &format!("{options}{}", served.name)).unwrap();
        let arena =
            Arena::new(4096, 1, ArenaOptions { shared: true, ..Default::default() }).unwrap();
        let channel = ChannelOptions { depth: 4, arenas: vec![arena.clone()], wake: None };
        let mut channel = device.open_channel(&channel).unwrap();
        let before = served.card.interrupts();
        let mut completions = Vec::new();
        for number in 0..REQUESTS {
            let buffer = arena.lease().unwrap();
            let request = Request::write(number * 4096, 4096, buffer, number);
            channel.submit(request).map_err(|_| "busy").unwrap();
            let options = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
            assert_eq!(channel.wait(&mut completions, options), 1);
            completions.pop().unwrap().result.unwrap();
        }
        // The signal follows the answer that was seen, in the same step of the HBA.
        drop(channel);
        drop(device);
        let card = served.card.clone();
        drop(served);
        assert_eq!(card.interrupts() - before, interrupts, "{options}");
        assert_eq!(card.violations().told, Vec::<String>::new());
    }
}
