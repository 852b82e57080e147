//! Runs turns over each way to the drive.

use std::time::Duration;

use qpair_block::keys::split_driver_options;
use qpair_block::{
    BlockDevice, Buffer, Completion, DeviceSpec, Error, ErrorKind, IoChannel, Request, Result,
};
use qpair_drivers::Drivers;
use qpair_kernel::Mode;
use qpair_pci::sysfs::PciAddress;
use qpair_workload::{BlockSizes, Extent, Job, Latencies, Live, Observer, Order, Verbs, run};

use crate::load::Load;
use crate::own::{Own, buffers, channel_options};
use crate::report::{Turn, Way};
use crate::turn::{Counted, Length, Places, Slots, part, turn};

/// The drive and its name.
pub(crate) struct Drive {
    pub(crate) spec: DeviceSpec,
    pub(crate) own: Own,
    pub(crate) drivers: Drivers,
}

/// A function that returns whether to stop.
pub(crate) type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// The parameters of a turn.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) load: &'a Load,
    pub(crate) length: Length,
    pub(crate) seed: u64,
    pub(crate) stop: Stop<'a>,
}

/// The drive, as each way of a report reaches it.
pub(crate) trait Reach {
    /// Runs one turn over a way.
    fn turn(&mut self, way: Way, ask: Ask<'_>) -> Result<Turn>;

    /// Returns the address of the drive's PCI function, if it is known.
    fn function(&self) -> Option<String> {
        None
    }
}

/// Returns the address of the PCI function in the name of a drive: `0000:3b:00.0` of
/// `scsi:wait=sleep:0000:3b:00.0/1`.
fn function_of(spec: &DeviceSpec) -> Option<String> {
    let DeviceSpec::Driven { driver: "nvme" | "scsi", name } = spec else { return None };
    let (_, name) = split_driver_options(name);
    let address = name.split('/').next().and_then(PciAddress::parse)?;
    Some(address.to_string())
}

impl Reach for Drive {
    fn function(&self) -> Option<String> {
        function_of(&self.spec)
    }

    fn turn(&mut self, way: Way, ask: Ask<'_>) -> Result<Turn> {
        match way {
            Way::Floor | Way::UserFloor => self
                .jobs(ask, &|places| measure(self.own.prebuilt(ask.load)?.as_mut(), ask, places)),
            Way::Driver => self.jobs(ask, &|places| {
                measure(&mut Channel::open(self.own.device(), ask.load)?, ask, places)
            }),
            Way::Stack => stack(&self.drivers, &self.spec, Mode::default(), self.size_bytes(), ask),
            Way::IoUring | Way::Fio => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} runs over the kernel's driver", way.name()),
            )),
        }
    }
}

impl Drive {
    fn size_bytes(&self) -> u64 {
        self.own.device().size_bytes()
    }

    /// Runs all jobs of a load, each on its own thread.
    fn jobs(&self, ask: Ask<'_>, one: &(dyn Fn(Places) -> Result<Mine> + Sync)) -> Result<Turn> {
        let Ask { load, seed, .. } = ask;
        let counted: Vec<Result<Mine>> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..load.jobs)
                .map(|job| Places::new(load, job, self.size_bytes(), seed))
                .map(|places| std::thread::Builder::new().spawn_scoped(scope, move || one(places)))
                .collect();
            let joined = running.into_iter().map(|thread| {
                let thread = thread.map_err(|cause| Error::thread(cause, "measuring"))?;
                thread.join().unwrap_or_else(|_| {
                    Err(Error::new(
                        ErrorKind::Io,
                        "a measuring thread panicked, which is a bug in qpair",
                    ))
                })
            });
            joined.collect()
        });
        let (mut latencies, mut ios_per_s, mut seconds) = (Latencies::default(), 0.0, 0.0_f64);
        let (mut doorbells, mut calls_and_copies) = (None, (0, 0));
        for job in counted {
            let Mine { counted, doorbells: own, calls_and_copies: (calls, copies) } = job?;
            calls_and_copies = (calls_and_copies.0 + calls, calls_and_copies.1 + copies);
            ios_per_s += counted.latencies.len() as f64 / counted.seconds.max(1e-9);
            seconds = seconds.max(counted.seconds);
            latencies.add(&counted.latencies);
            if let Some(own) = own {
                let (commands, rung) = doorbells.unwrap_or((0, 0));
                doorbells = Some((commands + counted.submitted, rung + own));
            }
        }
        let bytes_per_s = ios_per_s * f64::from(load.workload.block_bytes);
        let turn = Turn::of(&latencies, (ios_per_s, bytes_per_s), seconds);
        let (system_calls, copied) = (Some(calls_and_copies.0), Some(calls_and_copies.1));
        Ok(Turn { commands_and_doorbells: doorbells, system_calls, copied, ..turn })
    }
}

/// Runs one job's turn over a queue.
fn measure(slots: &mut dyn Slots, ask: Ask<'_>, places: Places) -> Result<Mine> {
    let Ask { load, length, stop, .. } = ask;
    let counted = turn(slots, load, places, length, stop)?;
    let (doorbells, calls_and_copies) = (slots.doorbells(), slots.calls_and_copies());
    Ok(Mine { counted, doorbells, calls_and_copies })
}

/// Runs the loop of `qpair bench io` over a device that one of the drivers opens.
pub(crate) fn stack(
    drivers: &Drivers,
    spec: &DeviceSpec,
    mode: Mode,
    size_bytes: u64,
    ask: Ask<'_>,
) -> Result<Turn> {
    until_counted(ask, |ask| {
        let of = |number| job(spec, mode, size_bytes, ask, number);
        let jobs: Vec<Job> = (0..ask.load.jobs).map(of).collect();
        let report = run(drivers, &jobs, &Unseen(ask.stop))?;
        let (mut latencies, mut rates, mut seconds) = (Latencies::default(), (0.0, 0.0), 0.0_f64);
        let mut system_calls = 0;
        for job in &report.jobs {
            if let Some(error) = &job.error {
                return Err(Error::new(ErrorKind::Io, error.what.clone()));
            }
            job.directions.iter().for_each(|direction| latencies.add(&direction.lat));
            rates = (rates.0 + job.ios_per_s(), rates.1 + job.bytes_per_s());
            seconds = seconds.max(job.elapsed.as_secs_f64());
            system_calls += job.cpu.system_calls;
        }
        let turn = Turn::of(&latencies, rates, seconds);
        Ok(Turn { system_calls: Some(system_calls), ..turn })
    })
}

/// Repeats a turn until at least one I/O was counted: other programs may use the processor during
/// all of a short turn.
pub(crate) fn until_counted(
    ask: Ask<'_>,
    mut once: impl FnMut(Ask<'_>) -> Result<Turn>,
) -> Result<Turn> {
    for times in [1, 8, 64] {
        let length = Length { run: times * ask.length.run, ..ask.length };
        let turn = once(Ask { length, ..ask })?;
        if turn.ios > 0 || (ask.stop)() {
            return Ok(turn);
        }
    }
    Err(Error::new(ErrorKind::Io, "no I/O completed in time"))
}

fn job(spec: &DeviceSpec, mode: Mode, size_bytes: u64, ask: Ask<'_>, number: u32) -> Job {
    let Ask { load, length, seed, .. } = ask;
    let mut job = Job::new(load.workload.words(), spec.clone(), mode);
    let (begin, blocks) = part(load, number, size_bytes);
    job.clone = number;
    job.seed = seed.wrapping_add(u64::from(number));
    job.offset = Extent::Bytes(begin);
    job.size = Some(Extent::Bytes(blocks * u64::from(load.workload.block_bytes)));
    job.read_only = !load.workload.write;
    // A user who allows writes knows that the data on the drive is lost.
    job.force = load.workload.write;
    job.verbs = if load.workload.write { Verbs::Write } else { Verbs::Read };
    job.order = if load.workload.random { Order::Random } else { Order::Sequential };
    // The floor does not record the places that it has visited.
    job.random_map = false;
    job.block_sizes =
        [const { BlockSizes::Fixed(0) }; 3].map(|_| BlockSizes::Fixed(load.workload.block_bytes));
    job.depth = load.depth;
    job.time_based = true;
    job.ramp = length.ramp;
    job.runtime = Some(length.run);
    job
}

/// The results of one job.
struct Mine {
    counted: Counted,
    doorbells: Option<u64>,
    calls_and_copies: (u64, u64),
}

/// The driver's channel, with one request for each slot.
struct Channel {
    channel: Box<dyn IoChannel>,
    buffers: Vec<Option<Buffer>>,
    completions: Vec<Completion>,
    block_bytes: u32,
    write: bool,
}

impl Channel {
    fn open(device: &dyn BlockDevice, load: &Load) -> Result<Self> {
        let (arena, buffers) = buffers(device, load)?;
        Ok(Self {
            channel: device.open_channel(&channel_options(load, &arena))?,
            buffers: buffers.into_iter().map(Some).collect(),
            completions: Vec::with_capacity(load.depth as usize),
            block_bytes: load.workload.block_bytes,
            write: load.workload.write,
        })
    }
}

impl Slots for Channel {
    #[inline]
    fn submit(&mut self, slot: u16, offset_bytes: u64) -> Result<()> {
        let twice = || Error::new(ErrorKind::Io, format!("slot {slot} has no buffer"));
        let buffer =
            self.buffers.get_mut(usize::from(slot)).and_then(Option::take).ok_or_else(twice)?;
        let request = match self.write {
            true => Request::write(offset_bytes, self.block_bytes, buffer, slot.into()),
            false => Request::read(offset_bytes, self.block_bytes, buffer, slot.into()),
        };
        let full = |_| Error::new(ErrorKind::Limit, "the channel is full");
        self.channel.submit(request).map_err(full)
    }

    #[inline]
    fn poll(&mut self, done: &mut Vec<u16>) -> Result<()> {
        self.channel.kick();
        self.channel.poll(&mut self.completions);
        for completion in self.completions.drain(..) {
            completion.result.map_err(|cause| {
                Error::new(cause.kind, "waiting for a request of the driver's turn")
                    .caused_by(cause)
            })?;
            let slot = completion.tag as u16;
            if let Some(place) = self.buffers.get_mut(usize::from(slot)) {
                *place = completion.buffer;
            }
            done.push(slot);
        }
        Ok(())
    }

    fn calls_and_copies(&self) -> (u64, u64) {
        let statistics = self.channel.statistics();
        (statistics.system_calls, statistics.copied)
    }
}

/// An observer that shows no progress, and passes on requests to stop.
struct Unseen<'a>(Stop<'a>);

impl Observer for Unseen<'_> {
    fn tick(&self, _: &Live) {}

    fn stop(&self) -> bool {
        (self.0)()
    }
}

/// Returns the length of the ramp: the time before a turn counts.
pub(crate) fn ramp_of(run: Duration) -> Duration {
    (run / 10).clamp(Duration::from_millis(10), Duration::from_millis(500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_in_names() {
        for (spec, function) in [
            ("scsi:wait=sleep:0000:3b:00.0/1", Some("0000:3b:00.0")),
            ("scsi:0000:3b:00.0/sas.000000000c500123", Some("0000:3b:00.0")),
            ("nvme:0000:03:00.0/ns2", Some("0000:03:00.0")),
            ("scsi:soft:size=16MiB,queues=4/0", None),
            ("softnvme:size=16MiB", None),
        ] {
            let found = function_of(&DeviceSpec::parse(spec).unwrap());
            assert_eq!(found.as_deref(), function, "{spec}");
        }
    }
}
