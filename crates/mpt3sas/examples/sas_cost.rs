//! The cost of disk, middle layer and driver by themselves: reads of 4 KiB at depth 32 on a
//! controller that answers at once and moves no data.
//!
//! ```text
//! cargo run --release -p qpair-mpt3sas --example sas_cost              ns a read through all layers, and through those above the driver
//! valgrind --tool=callgrind target/release/examples/sas_cost 1000      instructions: those of Stub are not the driver's
//! ```

#![allow(clippy::unwrap_used, reason = "an example that fails should panic")]
#![allow(clippy::print_stdout, reason = "an example speaks")]
#![allow(dead_code, reason = "the tests use the rest")]

#[path = "../tests/mpt3sas/stub.rs"]
mod stub;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, Completion, Request, Result,
};
use qpair_mpt3sas::{HbaOptions, Mpt3sas};
use qpair_pci::InProcess;
use qpair_scsi::host::{
    Change, Data, Host, HostInfo, HostQueue, Outcome, QueueOptions, Refusal, Report, SENSE_BYTES,
    Target, Task, Unit,
};
use qpair_scsi::{ScsiDisk, ScsiOptions};
use qpair_scsi_wire::Cdb;

use stub::Stub;

const DEPTH: u32 = 32;
const BLOCKS: u64 = 1 << 20;

/// A host whose queues do nothing, to measure the layers above a driver.
#[derive(Debug)]
struct Nothing(Arc<dyn Host>);

impl Host for Nothing {
    fn info(&self) -> &HostInfo {
        self.0.info()
    }

    fn scan(&self) -> Result<Vec<Target>> {
        self.0.scan()
    }

    fn open_queue(&self, unit: Unit, options: &QueueOptions<'_>) -> Result<Box<dyn HostQueue>> {
        match options.depth {
            DEPTH => Ok(Box::new(NoQueue { reports: Vec::with_capacity(DEPTH as usize) })),
            _ => self.0.open_queue(unit, options),
        }
    }

    fn reset(&self) -> Result<()> {
        self.0.reset()
    }

    fn changes(&self) -> Vec<Change> {
        self.0.changes()
    }
}

struct NoQueue {
    reports: Vec<Report>,
}

impl HostQueue for NoQueue {
    fn reaches(&mut self, _: &Arena) -> bool {
        true
    }

    fn queue(
        &mut self,
        tag: u16,
        _: &Cdb,
        _: Option<Data<'_>>,
    ) -> std::result::Result<(), Refusal> {
        self.reports.push(Report::Ended(tag, Outcome::Good));
        Ok(())
    }

    fn kick(&mut self) {}

    fn poll(&mut self, reports: &mut Vec<Report>) {
        reports.append(&mut self.reports);
    }

    fn sense(&mut self, _: u16, _: &mut [u8; SENSE_BYTES]) -> usize {
        0
    }

    fn begin_task(&mut self, _: Task) -> std::result::Result<(), Refusal> {
        Err(Refusal::Later)
    }

    fn begin_reset(&mut self) {}
}

/// Runs reads. Returns their number, and the ns that each took.
fn run(disk: &ScsiDisk, rounds: u64, begin: impl FnOnce()) -> (u64, f64) {
    let arena = Arena::new(4096, DEPTH, ArenaOptions::ordinary_pages()).unwrap();
    let options = ChannelOptions { depth: DEPTH, arenas: vec![arena.clone()], wake: None };
    let mut channel = disk.open_channel(&options).unwrap();
    begin();
    let mut buffers: Vec<Buffer> = std::iter::from_fn(|| arena.lease()).collect();
    let mut completions: Vec<Completion> = Vec::with_capacity(DEPTH as usize);
    let (mut place, mut done) = (0u64, 0u64);
    let start = Instant::now();
    for _ in 0..rounds {
        while let Some(buffer) = buffers.pop() {
            place = place
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let offset = (place >> 33) % (BLOCKS / 8) * 4096;
            channel.submit(Request::read(offset, 4096, buffer, place)).unwrap();
        }
        channel.kick();
        done += channel.poll(&mut completions) as u64;
        for completion in completions.drain(..) {
            completion.result.unwrap();
            buffers.extend(completion.buffer);
        }
    }
    (done, start.elapsed().as_nanos() as f64 / done as f64)
}

fn open(host: Arc<dyn Host>) -> ScsiDisk {
    let unit = Unit { target: 0, lun: Default::default() };
    ScsiDisk::open(host, unit, "stub", ScsiOptions::default()).unwrap()
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).map_or(200_000, |text| text.parse().unwrap());
    let stub = Stub::new("size=512MiB,medium=null", true);
    let function = Arc::new(InProcess::new("stub", stub.clone()));
    let driver = Mpt3sas::open(function, HbaOptions::default()).unwrap();
    let (disk, above) = (open(driver.clone()), open(Arc::new(Nothing(driver))));
    let (_, above_ns) = run(&above, rounds, || ());
    let (done, all_ns) = run(&disk, rounds, || stub.answer_at_once());
    let stub_ns = stub.spent_ns.load(Ordering::Relaxed) as f64 / done as f64;
    println!(
        "{done} reads of 4 KiB at depth {DEPTH}: {:.1} ns each for disk, middle layer, driver and this loop; {above_ns:.1} ns of it above the driver; {stub_ns:.1} ns more for the stub's step",
        all_ns - stub_ns,
    );
}
