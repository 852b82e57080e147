//! The NVMe driver over the socket, on the soft controller: the suite of every block device, and a
//! controller that disappears.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use qpair_block::{
    Arena, BlockDevice, ChannelOptions, ErrorKind, IoError, Mapping, Request, Segment, WaitOptions,
};
use qpair_conformance::{Options, copied_lists, run};
use qpair_nvme::{Controller, ControllerOptions, WaitMode};
use qpair_pci::PciFunction;
use qpair_softdev::{Doorbells, NamespaceOptions, SoftNvme, SoftNvmeOptions};
use qpair_vfio_user::{Client, ClientOptions, Counters, Host, Idle, Server, ServerOptions};

use crate::common::connect;

/// Drives on a thread of their own; dropping it ends the thread.
pub(crate) struct Served {
    pub(crate) path: PathBuf,
    stop: Arc<AtomicBool>,
    pub(crate) counters: Arc<Mutex<Counters>>,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Served {
    pub(crate) fn new(soft: &SoftNvmeOptions, server: &ServerOptions) -> Self {
        Self::with_idle(soft, server, Idle::default())
    }

    fn with_idle(soft: &SoftNvmeOptions, server: &ServerOptions, idle: Idle) -> Self {
        let folder =
            tempfile::Builder::new().prefix("vn").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("cntrl");
        let drive = SoftNvme::new(soft.clone()).unwrap();
        let server = Server::bind(&path, drive.clone(), server.clone()).unwrap();
        let mut host = Host::new(vec![(drive, server)], idle);
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Mutex::new(Counters::default()));
        let thread = std::thread::spawn({
            let (stop, counters) = (stop.clone(), counters.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    host.run_for(Duration::from_millis(1));
                    *counters.lock().unwrap() = host.drives()[0].1.counters();
                }
            }
        });
        Self { path, stop, counters, thread: Some(thread), _folder: folder }
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn open(path: &Path, wait: WaitMode) -> Arc<Controller> {
    let client = connect(path);
    let options = ControllerOptions { wait, ..ControllerOptions::default() };
    Controller::open(Arc::new(client), options).unwrap()
}

pub(crate) fn soft(block: u32) -> SoftNvmeOptions {
    let namespace = NamespaceOptions {
        size_bytes: 8 << 20,
        logical_block_bytes: block,
        ..NamespaceOptions::default()
    };
    SoftNvmeOptions { namespaces: vec![namespace], ..SoftNvmeOptions::default() }
}

/// Runs the suite. Returns the servers' counters.
fn pass(soft: &SoftNvmeOptions, server: &ServerOptions, wait: WaitMode) -> Counters {
    // The suite opens a device for each check, and may keep the one before: each is a drive of its
    // own.
    let all = Mutex::new(Vec::new());
    let make = || {
        let served = Served::new(soft, server);
        // A folder that contains the socket is accepted, too.
        let device = open(served.path.parent().unwrap(), wait).open_default_namespace(None);
        all.lock().unwrap().push(served);
        Arc::new(device.unwrap()) as Arc<dyn BlockDevice>
    };
    let report = run(make, Options::default());
    println!("{report}");
    report.assert_passed();
    let skipped: Vec<_> = report.skipped().map(|(name, _)| name).collect();
    assert_eq!(skipped, ["grow", "read_only_refuses_writes", "reset"], "{report}");
    let mut sum = Counters::default();
    for served in all.into_inner().unwrap() {
        let counters = *served.counters.lock().unwrap();
        sum.region_writes += counters.region_writes;
        sum.trapped_writes += counters.trapped_writes;
        assert_eq!(counters.errors, 0);
    }
    sum
}

#[test]
fn polled() {
    for block in [512, 4096] {
        let counters = pass(&soft(block), &ServerOptions::default(), WaitMode::Poll);
        assert!(counters.region_writes > 0);
        assert_eq!(counters.trapped_writes, 0, "doorbells are mapped");
    }
}

/// A server that disconnects a client whose memory shrinks must not get memory of other processes
/// that can shrink.
#[test]
fn memory_of_others_is_passed_on_if_it_cannot_shrink() {
    const LEN: usize = 1 << 20;
    let served = Served::new(&soft(512), &ServerOptions::default());
    let controller = open(&served.path, WaitMode::Poll);
    let device: Arc<dyn BlockDevice> = Arc::new(controller.open_default_namespace(None).unwrap());
    let segment = |offset_bytes, len_bytes| Segment { region: 0, offset_bytes, len_bytes };
    let segments = [segment(512, 3584), segment(8192, 4096), segment(LEN as u64 / 2, 65536)];
    let (_, sealed) = Mapping::new_file(3 * LEN).unwrap();
    let open = rustix::fs::memfd_create("open", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&open, 3 * LEN as u64).unwrap();
    for (file, copied) in [(sealed, 0), (open, 2)] {
        // On the grid of what is opened, and off it.
        for offset_bytes in [0, LEN as u64 + 4096] {
            let region = Mapping::of_lasting_file(file.as_fd(), offset_bytes, LEN).unwrap();
            assert_eq!(copied_lists(&device, &region, &segments, true), Ok(copied));
            assert_eq!(Arc::strong_count(&region), 1, "nothing has it open any more");
        }
    }
    assert_eq!(served.counters.lock().unwrap().errors, 0);
}

#[test]
fn asleep() {
    pass(&soft(512), &ServerOptions::default(), WaitMode::Sleep);
}

#[test]
fn doorbells_that_are_messages() {
    let server = ServerOptions { mapped: false, ..ServerOptions::default() };
    assert!(pass(&soft(4096), &server, WaitMode::Poll).trapped_writes > 1000);
}

/// A driver that is offered doorbells in its own memory maps none, and rings only when the drive
/// sleeps.
#[test]
fn doorbells_in_memory() {
    let soft = SoftNvmeOptions { doorbells: Doorbells::Shadow, ..soft(4096) };
    for wait in [WaitMode::Poll, WaitMode::Sleep] {
        let counters = pass(&soft, &ServerOptions::default(), wait);
        assert!(counters.trapped_writes > 0);
    }
}

/// A queue full of requests is rung once: the drive is awake from then on.
#[test]
fn a_busy_drive_is_not_rung() {
    const READS: u64 = 10_000;
    let soft = SoftNvmeOptions { doorbells: Doorbells::Shadow, ..soft(4096) };
    let served = Served::with_idle(&soft, &ServerOptions::default(), Idle::Poll);
    let controller = open(&served.path, WaitMode::Poll);
    assert!(controller.info().doorbells_shadowed && !controller.info().doorbells_mapped);
    let device = controller.open_default_namespace(None).unwrap();
    let arena = Arena::new(4096, 64, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 64, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    let (mut sent, mut done, mut completions) = (0, 0, Vec::new());
    while done < READS {
        while sent < READS
            && let Some(buffer) = arena.lease()
        {
            channel.submit(Request::read(sent % 1000 * 4096, 4096, buffer, sent)).unwrap();
            sent += 1;
        }
        let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
        channel.wait(&mut completions, one);
        for completion in completions.drain(..) {
            completion.result.unwrap();
            done += 1;
        }
    }
    drop(channel);
    drop((device, controller));
    std::thread::sleep(Duration::from_millis(20));
    let trapped = served.counters.lock().unwrap().trapped_writes;
    // Those of the admin queue, and the first of each I/O queue.
    assert!((1..READS / 100).contains(&trapped), "{trapped} doorbells for {READS} reads");
}

/// After a reset the controller is told the addresses of the doorbells again, and channels
/// continue.
#[test]
fn a_reset_keeps_doorbells_in_memory() {
    let soft = SoftNvmeOptions { doorbells: Doorbells::Shadow, ..soft(4096) };
    let served = Served::new(&soft, &ServerOptions::default());
    let controller = open(&served.path, WaitMode::Poll);
    let device = controller.open_default_namespace(None).unwrap();
    let arena = Arena::new(4096, 8, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 8, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    let mut completions = Vec::new();
    for round in 0..60_u64 {
        let is_reset = round % 20 == 10;
        if is_reset {
            controller.reset().unwrap();
        }
        let count = round % 8 + 1;
        for tag in 0..count {
            let buffer = arena.lease().unwrap();
            channel.submit(Request::read(tag * 4096, 4096, buffer, tag)).unwrap();
        }
        while completions.len() < count as usize {
            let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
            channel.wait(&mut completions, one);
        }
        // What the channel sent before it saw the reset is canceled.
        let is_sound = |result: Result<(), IoError>| {
            result.is_ok() || is_reset && result.is_err_and(IoError::can_be_retried)
        };
        assert!(completions.drain(..).all(|completion| is_sound(completion.result)), "{round}");
    }
    assert_eq!(controller.resets(), 3);
}

/// SPDK's target sent no interrupts before MSI-X was enabled: `wait=sleep` took 100 ms for each
/// request, and nothing reported it.
#[test]
fn completions_that_no_interrupt_tells_of_and_resets_are_counted() {
    let served = Served::new(&soft(512), &ServerOptions::default());
    let client = Arc::new(connect(&served.path));
    let options = ControllerOptions { wait: WaitMode::Sleep, ..ControllerOptions::default() };
    let controller = Controller::open(client.clone(), options).unwrap();
    let device = controller.open_default_namespace(None).unwrap();
    let arena = Arena::new(4096, 1, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    for vector in 0..client.irq_count() {
        client.set_irq(vector, None).unwrap();
    }
    let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
    for _ in 0..3 {
        channel.submit(Request::read(0, 4096, arena.lease().unwrap(), 0)).unwrap();
        channel.kick();
        let mut completions = Vec::new();
        assert_eq!(channel.wait(&mut completions, one), 1);
        completions.remove(0).result.unwrap();
    }
    assert_eq!(channel.statistics().timeouts_polled, 3);
    assert_eq!(channel.statistics().resets, 0);
    controller.reset().unwrap();
    channel.poll(&mut Vec::new());
    let again = Request::read(0, 4096, arena.lease().unwrap(), 0);
    channel.submit(again).unwrap();
    assert_eq!(channel.wait(&mut Vec::new(), one), 1);
    assert_eq!(channel.statistics().resets, 1);
}

#[test]
fn a_controller_is_for_one_driver_and_outlives_it() {
    let served = Served::new(&soft(512), &ServerOptions::default());
    let controller = open(&served.path, WaitMode::Poll);
    let device = controller.open_default_namespace(None).unwrap();
    let second = Client::connect(&served.path, &ClientOptions::default());
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Busy);
    let bytes = device.size_bytes();
    assert_eq!(bytes, 8 << 20);
    drop((device, controller));
    let controller = open(&served.path, WaitMode::Poll);
    assert_eq!(controller.open_default_namespace(None).unwrap().size_bytes(), bytes);
}

#[test]
fn a_controller_whose_process_ends() {
    let mut served = Served::new(&soft(512), &ServerOptions::default());
    let controller = open(&served.path, WaitMode::Poll);
    let device = controller.open_default_namespace(None).unwrap();
    served.end();
    let again = Client::connect(&served.path, &ClientOptions::default()).unwrap_err();
    assert!(again.way_out().is_some(), "{again}");
    // Nothing hangs, and nothing panics.
    drop((device, controller));
}

/// With huge pages required, the device is given only memory on huge pages, and data elsewhere is
/// copied. Without huge pages, the error says how to get some.
#[test]
fn memory_of_huge_pages_alone() {
    let served = Served::new(&soft(512), &ServerOptions::default());
    let options = ClientOptions { huge_pages: true, ..ClientOptions::default() };
    let client = Client::connect(&served.path, &options).unwrap();
    let controller = match Controller::open(Arc::new(client), ControllerOptions::default()) {
        Ok(controller) => controller,
        Err(error) => {
            assert!(error.to_string().contains("sysctl -w vm.nr_hugepages="), "{error}");
            println!("skipped: {error}");
            return;
        }
    };
    let device = controller.open_default_namespace(None).unwrap();
    let arena = Arena::new(4096, 1, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    channel.submit(Request::read(0, 4096, arena.lease().unwrap(), 0)).unwrap();
    channel.kick();
    let mut done = Vec::new();
    while done.is_empty() {
        channel.wait(&mut done, WaitOptions { want: 1, linger: Duration::ZERO, timeout: None });
    }
    assert_eq!((done[0].result, channel.statistics().copied), (Ok(()), 1));
}
