//! Planned faults behind an HBA. Each occurs at a request number, counted from the beginning of the
//! plan.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fastrand::Rng;
use qpair_block::{BlockDevice as _, time};
use qpair_mpt3sas::Mpt3sas;
use qpair_scsi::ScsiDisk;
use qpair_scsi::host::Host as _;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::{BUSY, TASK_SET_FULL};
use qpair_softdev::hba::{Fault, Rule};

use super::Bench;
use super::met::Kind;

/// The maximum number of faults in one incarnation.
const EVENTS_MAX: usize = 12;
/// The driver gives the controller up after this many hanging resets.
const HANGS_MAX: u64 = 4;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A fault that this many commands meet.
    Fault(Kind, Fault, u64),
    /// A loss of power of all disks; the replies to this many commands after it are lost.
    PowerLoss(u64),
    IgnoreTasks(bool),
    HangResets(u64),
    ResetController,
    ResetDisk(usize),
    Pull(usize),
    Plug(usize),
    /// All threads stand still for a while.
    Stall(Duration),
}

pub(super) struct Trouble {
    pub(super) rng: Rng,
    events: VecDeque<(u64, Event)>,
    requests: u64,
    /// The fault that commands meet now, and the number of commands that had met a fault before it.
    fault: Option<(Kind, u64)>,
    driver: Weak<Mpt3sas>,
    disks: Vec<Weak<ScsiDisk>>,
}

impl Trouble {
    pub(super) fn new(rng: Rng) -> Self {
        let (events, driver, disks) = (VecDeque::new(), Weak::new(), Vec::new());
        Self { rng, events, requests: 0, fault: None, driver, disks }
    }

    pub(super) fn concerns(&mut self, driver: Weak<Mpt3sas>, disks: Vec<Weak<ScsiDisk>>) {
        (self.driver, self.disks) = (driver, disks);
    }

    fn plan(&mut self, disks: usize) {
        let rng = &mut self.rng;
        let mut at = 0;
        for _ in 0..rng.usize(1..=EVENTS_MAX) {
            // Small and large distances are equally likely.
            let most = 1 << rng.u8(1..9);
            at += rng.u64(0..most);
            let event = any_event(rng, disks);
            self.events.push_back((at, event));
            match event {
                Event::IgnoreTasks(true) => {
                    at += rng.u64(1..200);
                    self.events.push_back((at, Event::IgnoreTasks(false)));
                }
                Event::Pull(disk) => {
                    at += rng.u64(0..20);
                    self.events.push_back((at, Event::Plug(disk)));
                }
                _ => {}
            }
        }
    }
}

fn any_event(rng: &mut Rng, disks: usize) -> Event {
    let count = rng.u64(1..4);
    let disk = rng.usize(0..disks);
    match rng.u8(0..24) {
        0..3 => Event::Fault(Kind::LostReply, Fault::LoseReply, count),
        3..5 => Event::Fault(Kind::LostCommand, Fault::LoseCommand, count),
        5 => {
            let delay = Duration::from_micros(1 << rng.u8(4..18));
            Event::Fault(Kind::LateReply, Fault::Late(delay), count)
        }
        6 => Event::Fault(Kind::DoubledReply, Fault::DoubleReply, count),
        7 => Event::Fault(Kind::WrongId, Fault::WrongId, count),
        8..10 => {
            let status = if rng.bool() { BUSY } else { TASK_SET_FULL };
            Event::Fault(Kind::Refused, Fault::Status(status), count)
        }
        10 => {
            let (key, code) = match rng.u8(0..3) {
                0 => (Key::MediumError, Code::UNRECOVERED_READ_ERROR),
                1 => (Key::HardwareError, Code::INTERNAL_FAILURE),
                _ => (Key::AbortedCommand, Code(0x4B, 0)),
            };
            Event::Fault(Kind::Failed, Fault::Check(Sense::new(key, code)), count)
        }
        11..13 => Event::Fault(Kind::ControllerFault, Fault::IocFault(0x2665), 1),
        13..15 => Event::PowerLoss(0),
        15..18 => Event::PowerLoss(count),
        18 => Event::IgnoreTasks(true),
        19 => Event::HangResets(rng.u64(1..=HANGS_MAX)),
        20 => Event::ResetController,
        21 => Event::ResetDisk(disk),
        22 => Event::Stall(Duration::from_millis(rng.u64(1..400))),
        _ => Event::Pull(disk),
    }
}

/// Ends all current faults. If `comes`, makes a new plan of faults.
pub(super) fn begin(bench: &Bench, comes: bool) {
    set_fault(bench, None);
    bench.card.ignore_tasks(false);
    bench.card.hang_resets(0);
    let disks = bench.card.options().disks.len();
    for disk in 0..disks {
        bench.card.plug(disk);
    }
    let trouble = &mut bench.state.lock().trouble;
    trouble.requests = 0;
    trouble.events.clear();
    if comes {
        trouble.plan(disks);
    }
}

/// Counts a request, and triggers the faults that are planned for its number.
pub(super) fn request(bench: &Bench) {
    bench.state.lock().trouble.requests += 1;
    loop {
        let event = {
            let trouble = &mut bench.state.lock().trouble;
            let now = trouble.requests;
            match trouble.events.front() {
                Some((at, _)) if *at <= now => trouble.events.pop_front(),
                _ => None,
            }
        };
        let Some((_, event)) = event else { return };
        happen(bench, event);
    }
}

fn set_fault(bench: &Bench, fault: Option<(Kind, Fault, u64)>) {
    let met = bench.card.faults_met();
    let mut state = bench.state.lock();
    if let Some((kind, before)) = state.trouble.fault.take() {
        state.met.add(kind, met - before);
    }
    state.trouble.fault = fault.map(|(kind, _, _)| (kind, met));
    let rules = fault.map(|(_, fault, count)| Rule { first: 0, count, fault });
    bench.card.set_faults(rules.into_iter().collect());
}

fn happen(bench: &Bench, event: Event) {
    let count = |kind| bench.state.lock().met.add(kind, 1);
    match event {
        Event::Fault(kind, fault, times) => set_fault(bench, Some((kind, fault, times))),
        Event::PowerLoss(lost_replies) => {
            count(Kind::PowerLoss);
            bench.note_loss();
            let seed = bench.state.lock().trouble.rng.u64(..);
            bench.card.power_cut(seed);
            if lost_replies > 0 {
                count(Kind::PowerLossWithLostReply);
                set_fault(bench, Some((Kind::LostReply, Fault::LoseReply, lost_replies)));
            }
        }
        Event::IgnoreTasks(ignore) => {
            if ignore {
                count(Kind::IgnoredTasks);
            }
            bench.card.ignore_tasks(ignore);
        }
        Event::HangResets(times) => {
            count(Kind::HungReset);
            bench.card.hang_resets(times);
        }
        Event::ResetController => {
            count(Kind::ResetAsked);
            let driver = bench.state.lock().trouble.driver.upgrade();
            // One that hangs is what others are told by.
            let _ = driver.map(|driver| driver.reset());
        }
        Event::ResetDisk(disk) => {
            count(Kind::DiskReset);
            let disk = bench.state.lock().trouble.disks.get(disk).and_then(Weak::upgrade);
            // It waits for channels that no thread polls meanwhile, and says so.
            let _ = disk.map(|disk: Arc<ScsiDisk>| disk.reset());
        }
        Event::Pull(disk) => {
            count(Kind::Pull);
            bench.note_loss();
            bench.card.pull(disk);
        }
        Event::Plug(disk) => drop(bench.card.plug(disk)),
        Event::Stall(for_so_long) => {
            count(Kind::Stall);
            time::sleep(for_so_long);
        }
    }
}
