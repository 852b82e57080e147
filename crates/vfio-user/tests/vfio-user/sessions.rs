//! The state that one driver leaves behind for the next: none.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qpair_block::{
    Arena, BlockDevice, Buffer, ChannelOptions, Completion, IoChannel, IoError, Request,
    WaitOptions,
};
use qpair_memory::Mapping;
use qpair_nvme::{Controller, ControllerOptions, NvmeDevice};
use qpair_pci::PciFunction;
use qpair_vfio_user::ServerOptions;
use qpair_vfio_user::codec::{Command, IrqAction, IrqData, RegionAccess, SetIrqs, irq_index};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::common::{Raw, Served as TestServed, connect, count_of, event, memory_file, wait_for};
use crate::nvme::{Served, soft};

const BLOCK: u32 = 512;
const BLOCKS: u64 = 256;

struct Driver {
    channel: Box<dyn IoChannel>,
    buffer: Option<Buffer>,
    // After the channel.
    _device: NvmeDevice,
}

impl Driver {
    /// Connects. Also returns the doorbells that the driver mapped.
    fn connect(path: &Path) -> (Self, Arc<Mapping>) {
        let client = connect(path);
        let doorbells = client.map_bar(0, 0x1000, 0x2000).unwrap().unwrap();
        let controller = Controller::open(Arc::new(client), ControllerOptions::default()).unwrap();
        let device = controller.open_default_namespace(None).unwrap();
        let arena = Arena::new(4096, 1, device.info().arena_options()).unwrap();
        let buffer = arena.lease();
        let options = ChannelOptions { depth: 4, arenas: vec![arena], wake: None };
        let channel = device.open_channel(&options).unwrap();
        (Self { channel, buffer, _device: device }, doorbells)
    }

    fn run(&mut self, request: Request) -> Result<(), IoError> {
        self.channel.submit(request).map_err(|_| "full").unwrap();
        self.channel.kick();
        let mut done: Vec<Completion> = Vec::new();
        while done.is_empty() {
            let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
            self.channel.wait(&mut done, one);
        }
        let done = done.remove(0);
        self.buffer = done.buffer;
        done.result.map(|_| ())
    }

    fn write(&mut self, block: u64, stamp: u64) -> Result<(), IoError> {
        let mut buffer = self.buffer.take().unwrap();
        let bytes = stamp.to_le_bytes().repeat(BLOCK as usize / 8);
        buffer.part_mut(0, BLOCK as usize).copy_from(0, &bytes);
        self.run(Request::write(block * u64::from(BLOCK), BLOCK, buffer, 0))
    }

    fn read(&mut self, block: u64) -> Result<u64, IoError> {
        let buffer = self.buffer.take().unwrap();
        self.run(Request::read(block * u64::from(BLOCK), BLOCK, buffer, 0))?;
        let bytes = self.buffer.as_ref().unwrap().as_slice();
        Ok(u64::from_le_bytes(bytes[..8].try_into().unwrap()))
    }
}

#[test]
fn a_driver_that_has_left_rings_no_bells() {
    let served = Served::new(&soft(BLOCK), &ServerOptions::default());
    let (mut old, doorbells) = Driver::connect(&served.path);
    for block in 0..BLOCKS {
        old.write(block, 1000 + block).unwrap();
    }
    drop(old);
    wait_for("its session to end", || served.counters.lock().unwrap().dma_maps == 0);
    let stop = Arc::new(AtomicBool::new(false));
    let attack = std::thread::spawn({
        let stop = stop.clone();
        move || {
            // Tails set back: what lies in the queues would run again.
            for value in (0..8u32).cycle() {
                for at in (0..64).step_by(4) {
                    doorbells.bytes().store_u32_release(at, value);
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    });
    let (mut new, _) = Driver::connect(&served.path);
    let mut wrong = Vec::new();
    for round in 0..8 {
        for block in 0..BLOCKS {
            if let Err(error) = new.write(block, round * BLOCKS + block) {
                wrong.push((round, block, error.to_string()));
            }
        }
        for block in 0..BLOCKS {
            match new.read(block) {
                Ok(stamp) if stamp == round * BLOCKS + block => {}
                other => wrong.push((round, block, format!("{other:?}"))),
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    attack.join().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {}: {:?}",
        wrong.len(),
        16 * BLOCKS,
        &wrong[..wrong.len().min(4)]
    );
}

/// Encodes a request to signal vectors from `start` on by events.
fn events(start: u32, count: u32) -> Vec<u8> {
    let (data, action) = (IrqData::Events, IrqAction::Trigger);
    SetIrqs { data, action, index: irq_index::MSIX, start, count }.payload()
}

#[test]
fn interrupts_that_are_no_eventfds_are_refused() {
    let served = TestServed::new();
    let mut raw = Raw::agreed(&served.path);
    let good = event();
    let (stream, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let (_read, write) = std::io::pipe().unwrap();
    let (path, folder) = (served.path.with_file_name("file"), served.path.parent().unwrap());
    std::fs::write(&path, "text").unwrap();
    let file: OwnedFd = std::fs::File::options().write(true).open(&path).unwrap().into();
    let bad: [OwnedFd; 5] = [
        file,
        std::fs::File::open(folder).unwrap().into(),
        write.into(),
        stream.into(),
        memory_file(4096),
    ];
    for fd in &bad {
        let fds = [good.as_fd(), fd.as_fd()];
        let answer = raw.ask(Command::SetIrqs, &events(0, 2), &fds);
        assert_eq!(answer.errno(), Errno::INVAL.raw_os_error() as u32);
        assert!(served.device.irqs.lock().unwrap().iter().all(Option::is_none), "not even one");
    }
    assert_eq!(raw.ask(Command::SetIrqs, &events(0, 1), &[good.as_fd()]).errno(), 0);
    assert_eq!(std::fs::read(path).unwrap(), b"text");
}

#[test]
fn an_interrupt_that_is_full_holds_up_nobody() {
    let served = TestServed::new();
    let mut raw = Raw::agreed(&served.path);
    // It would wait: it is full, and not marked otherwise.
    let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    assert_eq!(raw.ask(Command::SetIrqs, &events(0, 1), &[full.as_fd()]).errno(), 0);
    let ring = |raw: &mut Raw, value: u32| {
        let access = RegionAccess { offset_bytes: 0x1000, region: 0, len: 4 };
        raw.ask(Command::RegionWrite, &access.payload(&value.to_le_bytes()), &[]).errno()
    };
    for value in 1..=3 {
        assert_eq!(ring(&mut raw, value), 0);
        let known = u64::from(value);
        wait_for("the interrupt", || served.counters().undelivered_irqs == known);
    }
    // Room again: it is delivered again.
    rustix::io::read(&full, &mut [0; 8]).unwrap();
    rustix::fs::fcntl_setfl(&full, rustix::fs::OFlags::NONBLOCK).unwrap();
    assert_eq!(ring(&mut raw, 4), 0);
    wait_for("the interrupt", || count_of(&full) == 1);
    drop(raw);
    served.wait_until_alone();
    assert_eq!(served.counters().undelivered_irqs, 3);
}

#[test]
fn an_idle_client_keeps_no_device() {
    let idle_timeout = Some(Duration::from_millis(200));
    let served = TestServed::with(ServerOptions { idle_timeout, ..ServerOptions::default() });
    let mut idle = Raw::agreed(&served.path);
    assert!(served.last_end().contains("did nothing"));
    assert!(idle.answer().is_none(), "closed");
    let mut next = Raw::agreed(&served.path);
    assert_eq!(next.ask(Command::Reset, &[], &[]).errno(), 0);
}
