//! What goes wrong, on command: rules by the number of a command that reads or writes blocks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use qpair_scsi_wire::sense::Sense;

/// What happens to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is never done, and never answered.
    LoseCommand,
    /// It is done, and never answered.
    LoseReply,
    /// It is done, and answered this much later.
    Late(Duration),
    /// It is done, and answered twice.
    DoubleReply,
    /// It is done, and answered; before that comes an answer to a SMID that the driver did not use.
    WrongId,
    /// It is not done, and has this SCSI status.
    Status(u8),
    /// It is not done, and there is sense data.
    Check(Sense),
    /// It is not done: an IOC status.
    IocStatus(u16),
    /// It is not done, and the controller stops with this fault code.
    IocFault(u16),
    /// It is not done, and its drive is pulled.
    Pull,
}

/// Which commands, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<F = Fault> {
    /// The first of them; commands are numbered from 0 on, from when the rules were set.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// What happens to them.
    pub fault: F,
}

#[derive(Debug)]
pub(crate) struct Faults<F = Fault> {
    is_any: AtomicBool,
    rules: Mutex<Vec<Rule<F>>>,
    commands: AtomicU64,
    /// Commands that something went wrong with.
    met: AtomicU64,
    /// Tasks are taken and never answered.
    ignore_tasks: AtomicBool,
    /// The controller does not come back from its next resets.
    hang_resets: AtomicU64,
}

impl<F> Default for Faults<F> {
    fn default() -> Self {
        Self {
            is_any: AtomicBool::new(false),
            rules: Mutex::new(Vec::new()),
            commands: AtomicU64::new(0),
            met: AtomicU64::new(0),
            ignore_tasks: AtomicBool::new(false),
            hang_resets: AtomicU64::new(0),
        }
    }
}

impl<F: Copy> Faults<F> {
    pub(crate) fn set(&self, rules: Vec<Rule<F>>) {
        let mut held = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        self.commands.store(0, Ordering::Relaxed);
        self.is_any.store(!rules.is_empty(), Ordering::Release);
        *held = rules;
    }

    /// What happens to the next command.
    #[inline]
    pub(crate) fn next(&self) -> Option<F> {
        if !self.is_any.load(Ordering::Acquire) {
            return None;
        }
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let is_hit =
            |rule: &&Rule<F>| number.checked_sub(rule.first).is_some_and(|n| n < rule.count);
        let fault = rules.iter().find(is_hit).map(|rule| rule.fault);
        if fault.is_some() {
            self.met.fetch_add(1, Ordering::Relaxed);
        }
        fault
    }

    pub(crate) fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    pub(crate) fn ignore_tasks(&self, ignore: bool) {
        self.ignore_tasks.store(ignore, Ordering::Relaxed);
    }

    pub(crate) fn ignores_tasks(&self) -> bool {
        self.ignore_tasks.load(Ordering::Relaxed)
    }

    pub(crate) fn hang_resets(&self, count: u64) {
        self.hang_resets.store(count, Ordering::Relaxed);
    }

    /// Whether the reset that begins now hangs.
    pub(crate) fn takes_hang(&self) -> bool {
        let less = |count: u64| count.checked_sub(1);
        self.hang_resets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}
