//! A drive of the kernel's driver that is lent in turns to the module and to this program's driver,
//! and then returned.
//!
//! Invariant: while a way runs, the drive is bound to that way's driver. At the end, even of a
//! failed run, it is bound to its original driver.

use std::path::PathBuf;
use std::time::Duration;

use qpair_block::{DeviceSpec, Error, ErrorKind, Result};
use qpair_drivers::{Drivers, Loan, Named};
use qpair_kernel::{Interface, Mode};
use qpair_pci::sysfs::VFIO_PCI;

use crate::events::Events;
use crate::fio;
use crate::hwperf::{About, Hwperf};
use crate::load::Load;
use crate::module::{self, HWPERF, Private};
use crate::own::Own;
use crate::paths::{Ask, Drive, Reach, stack, until_counted};
use crate::report::{Parts, Report, Turn, Way};
use crate::turn::Length;
use crate::turns::{KernelDrive, Limits, Options, Watcher, choose, look_for_counts, rounds};

/// The longest turn with tracepoints: its events must fit into the kernel's buffer.
const TRACED_MAX: Duration = Duration::from_millis(200);

pub(crate) fn run(options: &Options, drive: &KernelDrive, watcher: &dyn Watcher) -> Result<Report> {
    let named = Named::find(&drive.name)?;
    // Before the loan: a child that is forked while its note is locked shares the lock until it
    // executes fio, also if this program is killed meanwhile.
    let fio = fio::version();
    let loan = Loan::begin(named.address)?;
    let folder = Private::make(named.address)?;
    let mut lent = Lent {
        loan,
        named,
        folder,
        drivers: options.drivers.clone(),
        has_module: !drive.without_module,
        user: None,
        size_bytes: 0,
    };
    let outcome = lent.measure(options, drive, fio, watcher);
    match (outcome, lent.end()) {
        (outcome, Ok(())) => outcome,
        (Ok(_), Err(error)) => Err(error),
        (Err(first), Err(error)) => {
            let context = format!("{first}; then the drive could not be given back");
            Err(Error::new(error.kind(), context).caused_by(error))
        }
    }
}

struct Lent {
    loan: Loan,
    named: Named,
    folder: Private,
    drivers: Drivers,
    /// Whether the kernel module measures the floor.
    has_module: bool,
    /// The drive while this program drives it.
    user: Option<Drive>,
    size_bytes: u64,
}

impl Lent {
    fn measure(
        &mut self,
        options: &Options,
        drive: &KernelDrive,
        fio: Option<String>,
        watcher: &dyn Watcher,
    ) -> Result<Report> {
        let (mut ways, mut notes) = (vec![Way::Floor], Vec::new());
        let mut mode = self.named.about.clone();
        let (mut limits, has_module) = (None, self.has_module);
        if has_module {
            limits = Some(self.load_module(drive, watcher)?);
            mode += &format!("; floor: the kernel's module {HWPERF}");
        }
        match self.user() {
            Ok(drive) => {
                let own = drive.own.limits();
                limits = Some(limits.map_or(own, |of_module: Limits| of_module.and(own)));
                mode += &format!("; driver: {}", drive.own.device().info().mode);
                ways.extend(has_module.then_some(Way::UserFloor));
                ways.extend([Way::Driver, Way::Stack]);
            }
            Err(cause) if cause.kind() == ErrorKind::Unsupported && has_module => {
                notes.push(format!("this program's driver is left out: {cause}"));
            }
            Err(error) => return Err(error),
        }
        let Some(limits) = limits else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the floor cannot be measured: neither the module nor this program's driver is there",
            ));
        };
        self.size_bytes = limits.size_bytes;
        ways.push(Way::IoUring);
        match fio {
            Some(version) => {
                mode += &format!("; {version}");
                ways.push(Way::Fio);
            }
            None => notes.push("fio is left out: it is not installed".to_owned()),
        }
        notes.iter().for_each(|note| watcher.note(note));
        let (seconds, name) = (options.time.as_secs_f64(), drive.name.clone());
        let mut report = Report::new(name, mode, seconds, options.repeat);
        report.notes = notes;
        let own = self.user.as_ref().map(|drive| &drive.own);
        choose(&mut report, options, &limits, own, &ways, watcher)?;
        rounds(options, self, &mut report, watcher)?;
        report.compare();
        if !report.interrupted {
            look_for_counts(options, self, &mut report, watcher)?;
        }
        if !report.interrupted {
            self.look_for_parts(options, &mut report, watcher)?;
        }
        Ok(report)
    }

    /// Builds the module if necessary and loads it. Returns the limits of the drive under it.
    fn load_module(&mut self, drive: &KernelDrive, watcher: &dyn Watcher) -> Result<Limits> {
        let file = match &drive.module {
            Some(file) => file.clone(),
            None => {
                watcher.at(0, 1, "building the module");
                module::build(self.folder.path(), drive.headers.as_deref())?
            }
        };
        if module::load(&file, self.named.unit)? {
            self.loan.needs_module(HWPERF)?;
        }
        let about = self.module()?.about()?;
        Ok(limits_of(&about))
    }

    fn end(mut self) -> Result<()> {
        self.user = None;
        self.loan.end()
    }

    /// Binds the drive to the module.
    fn module(&mut self) -> Result<Hwperf> {
        self.user = None;
        self.loan.to(HWPERF)?;
        Hwperf::of(self.named.address)
    }

    /// Binds the drive to this program's driver.
    fn user(&mut self) -> Result<&mut Drive> {
        if self.user.is_none() {
            let spec = self.named.own_spec();
            self.loan.to(VFIO_PCI)?;
            let own = Own::open(&self.drivers, &spec)?;
            self.user = Some(Drive { spec, own, drivers: self.drivers.clone() });
        }
        let gone =
            || Error::new(ErrorKind::Gone, "the drive that was opened just now has disappeared");
        self.user.as_mut().ok_or_else(gone)
    }

    /// Binds the drive to the kernel's driver and returns its block device.
    fn kernel(&mut self, load: &Load) -> Result<PathBuf> {
        self.user = None;
        self.loan.home()?;
        let device = self.loan.block_device(self.named.unit)?;
        if load.workload.write {
            self.loan.check_free()?;
        }
        Ok(device)
    }

    fn io_uring(&mut self, ask: Ask<'_>) -> Result<Turn> {
        let spec = DeviceSpec::File(self.kernel(ask.load)?);
        stack(&self.drivers, &spec, Mode::new(Interface::IoUring), self.size_bytes, ask)
    }

    /// Runs a turn of each load with tracepoints.
    fn look_for_parts(
        &mut self,
        options: &Options,
        report: &mut Report,
        watcher: &dyn Watcher,
    ) -> Result<()> {
        for at in 0..report.points.len() {
            let point = &report.points[at];
            let (load, floor) = (point.load, point.floor());
            let floor_us = floor.and_then(|turns| turns.interval(|turn| turn.mean_us));
            let Some(device_us) = floor_us.map(|found| found.mid) else { continue };
            let device = self.kernel(&load)?;
            let events = match Events::begin(&device) {
                Ok(events) => events,
                Err(why) => {
                    report.notes.push(format!("where the gap goes was not looked for: {why}"));
                    return Ok(());
                }
            };
            let length = Length { ramp: Duration::ZERO, run: options.time.min(TRACED_MAX) };
            let stop = || watcher.stop();
            let ask = Ask { load: &load, length, seed: options.seed, stop: &stop };
            let turn = self.io_uring(ask)?;
            if watcher.stop() {
                report.interrupted = true;
                return Ok(());
            }
            report.points[at].parts = events.end()?.map(|spans| Parts {
                ios: spans.ios,
                mean_us: turn.mean_us,
                interface_us: turn.mean_us - spans.block_us - spans.driver_us,
                block_us: spans.block_us,
                driver_us: spans.driver_us - device_us,
                device_us,
            });
        }
        Ok(())
    }
}

impl Reach for Lent {
    fn turn(&mut self, way: Way, ask: Ask<'_>) -> Result<Turn> {
        match way {
            Way::Floor if self.has_module => {
                let module = self.module()?;
                until_counted(ask, |ask| module.turn(ask))
            }
            Way::Floor | Way::UserFloor | Way::Driver | Way::Stack => self.user()?.turn(way, ask),
            Way::IoUring => self.io_uring(ask),
            Way::Fio => {
                let device = self.kernel(ask.load)?;
                let folder = self.folder.path();
                until_counted(ask, |ask| fio::turn(&device, folder, self.size_bytes, ask))
            }
        }
    }

    fn function(&self) -> Option<String> {
        Some(self.named.address.to_string())
    }
}

fn limits_of(about: &About) -> Limits {
    Limits {
        block_bytes: about.block_bytes,
        command_bytes_max: about.command_bytes_max,
        queues: about.queues,
        depth_max: about.depth_max,
        slots_max: about.slots_max,
        size_bytes: about.blocks * u64::from(about.block_bytes),
    }
}
