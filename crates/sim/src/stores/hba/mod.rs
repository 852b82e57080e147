//! Members of a store as disks behind a soft HBA. The driver, the middle layer and the disk layer
//! are the real ones, on one thread, with the virtual clock.
//!
//! A machine lives as long as a run: one card with its disks. For each incarnation of the store a
//! new driver takes the card over.

mod channel;
mod disk;
mod met;
mod trouble;

use qpair_block::locks::Mutex;
use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_block::time::SimClock;
use qpair_block::time::VirtualTime;
use qpair_mpt3sas::{HbaOptions, Mpt3sas};
use qpair_pci::InProcess;
use qpair_scsi::host::{Host as _, Unit};
use qpair_scsi::{Canary, ScsiDisk, ScsiOptions};
use qpair_sim_block::{SimPower, TraceHash};
use qpair_softdev::flash::Profile;
use qpair_softdev::hba::{DiskOptions, DiskProfile};
use qpair_softdev::{SoftHba, SoftHbaOptions};

use disk::HbaDisk;
pub(crate) use met::Met;
use trouble::Trouble;

/// The sizes of disks are multiples of this number of bytes.
const BLOCK_BYTES: u64 = 4096;

/// A card with its disks, and its current driver.
pub(crate) struct Hba {
    bench: Arc<Bench>,
    options: ScsiOptions,
    plugged: Option<Plugged>,
    /// The disks' addresses, in the order of the members. A driver numbers the disks in the order
    /// in which it finds them.
    addresses: Vec<String>,
    /// The number of resets by earlier drivers.
    resets: u64,
    /// Dropped last, because all fields above use the virtual time.
    _time: VirtualTime,
}

/// A driver, and the disks that it has found.
struct Plugged {
    driver: Arc<Mpt3sas>,
    disks: Vec<Arc<ScsiDisk>>,
    members: Vec<Arc<dyn BlockDevice>>,
}

/// The state that the disks' channels share.
pub(crate) struct Bench {
    pub(super) card: Arc<SoftHba>,
    pub(super) clock: SimClock,
    state: Mutex<State>,
}

struct State {
    trouble: Trouble,
    trace: TraceHash,
    met: Met,
    errors: u64,
    /// Whether the disks have lost power since the driver was attached.
    was_dark: bool,
    /// Whether a disk has lost the content of its cache while its users continued.
    has_lost: bool,
}

impl Bench {
    pub(super) fn go_dark(&self) {
        let seed = {
            let mut state = self.state.lock();
            state.was_dark = true;
            state.trouble.rng.u64(..)
        };
        self.card.power_cut(seed);
    }

    /// Notes that a disk has lost power while its users continue.
    fn note_loss(&self) {
        self.state.lock().has_lost |= self.card.options().volatile_write_cache;
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.state.lock().has_lost
    }

    pub(crate) fn errors(&self) -> u64 {
        self.state.lock().errors
    }
}

impl Hba {
    /// Makes a card with disks of these sizes.
    pub(crate) fn new(
        sizes_bytes: &[u64],
        has_cache: bool,
        clock: &SimClock,
        (mut rng, canary): (fastrand::Rng, Option<Canary>),
    ) -> Result<Self, String> {
        let time = VirtualTime::begin(clock);
        let named = |name| Profile::named(name).map_err(|error| error.to_string());
        let profile = DiskProfile::Flash(named(if rng.bool() { "none" } else { "sas-ssd" })?);
        // A few disks have no timestamps.
        let timestamp = rng.u8(0..4) != 0;
        let of_size = |size: &u64| DiskOptions {
            size_bytes: size.next_multiple_of(BLOCK_BYTES),
            logical_block_bytes: 512,
            profile,
            timestamp,
            ..DiskOptions::default()
        };
        let options = SoftHbaOptions {
            disks: sizes_bytes.iter().map(of_size).collect(),
            is_later: rng.bool(),
            volatile_write_cache: has_cache,
            strict: true,
            serial: "SIM".to_owned(),
            ..SoftHbaOptions::default()
        };
        let card = SoftHba::new(options).map_err(|error| error.to_string())?;
        let options = ScsiOptions {
            timeout_ms: rng.u32(20..200),
            task_timeout_ms: rng.u32(10..50),
            retries_max: if rng.bool() { 5 } else { u8::MAX },
            canary,
            ..ScsiOptions::default()
        };
        let state = State {
            trouble: Trouble::new(rng),
            trace: TraceHash::default(),
            met: Met::default(),
            errors: 0,
            was_dark: false,
            has_lost: false,
        };
        let bench = Bench { card, clock: clock.clone(), state: Mutex::new(state) };
        Ok(Self {
            bench: Arc::new(bench),
            options,
            plugged: None,
            addresses: Vec::new(),
            resets: 0,
            _time: time,
        })
    }

    /// Restarts the machine: its power is on, and no faults occur.
    pub(crate) fn begin(&mut self, power: &SimPower) -> Result<(), String> {
        self.trouble(false);
        if let Some(plugged) = self.plugged.take() {
            self.resets += plugged.driver.resets();
        }
        let bench = &self.bench;
        {
            let mut state = bench.state.lock();
            (state.was_dark, state.has_lost) = (false, false);
        }
        let says = |error: qpair_block::Error| format!("opening the HBA: {error}");
        let options = HbaOptions {
            reset_timeout_ms: 500,
            message_timeout_ms: 2000,
            watch_ms: 5,
            ..HbaOptions::default()
        };
        let function = Arc::new(InProcess::new("softhba", bench.card.clone()));
        let driver = Mpt3sas::open(function, options).map_err(says)?;
        let (mut disks, mut members) = (Vec::new(), Vec::<Arc<dyn BlockDevice>>::new());
        let targets = driver.scan().map_err(says)?;
        if self.addresses.is_empty() {
            self.addresses = targets.iter().map(|target| target.address.clone()).collect();
        }
        for (number, address) in (0..).zip(&self.addresses) {
            let Some(target) = targets.iter().find(|target| target.address == *address) else {
                return Err(format!("the driver does not find {address}"));
            };
            let unit = Unit { target: target.number, lun: Default::default() };
            let name = format!("disk {number}");
            let disk =
                Arc::new(ScsiDisk::open(driver.clone(), unit, name, self.options).map_err(says)?);
            members.push(Arc::new(HbaDisk::new(
                disk.clone(),
                number,
                bench.clone(),
                power.clone(),
            )));
            disks.push(disk);
        }
        self.plugged = Some(Plugged { driver, disks, members });
        Ok(())
    }

    /// Cuts the power of the machine and restores it.
    pub(crate) fn lose_power(&self) {
        if !self.bench.state.lock().was_dark {
            self.bench.go_dark();
        }
    }

    /// Enables or disables faults from now on.
    pub(crate) fn trouble(&self, comes: bool) {
        trouble::begin(&self.bench, comes);
        if let Some(plugged) = &self.plugged {
            let disks = plugged.disks.iter().map(Arc::downgrade).collect();
            self.bench.state.lock().trouble.concerns(Arc::downgrade(&plugged.driver), disks);
        }
    }

    /// Returns the disks, as members of a store and the device of its log.
    pub(crate) fn disks(&self) -> &[Arc<dyn BlockDevice>] {
        self.plugged.as_ref().map_or(&[], |plugged| &plugged.members)
    }

    pub(crate) fn bench(&self) -> Arc<Bench> {
        self.bench.clone()
    }

    pub(crate) fn trace(&self) -> u64 {
        self.bench.state.lock().trace.value()
    }

    pub(crate) fn met(&self) -> Met {
        let mut met = self.bench.state.lock().met;
        let now = self.plugged.as_ref().map_or(0, |plugged| plugged.driver.resets());
        met.add(met::Kind::Reset, self.resets + now);
        met
    }

    /// Returns an error if the driver did something that no driver may do.
    pub(crate) fn judge(&self) -> Result<(), String> {
        let violations = self.bench.card.violations();
        match violations.count {
            0 => Ok(()),
            count => Err(format!("{count} violations by the driver: {:?}", violations.told)),
        }
    }
}
