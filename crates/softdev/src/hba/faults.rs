//! Fault injection: rules that select commands which read or write blocks by their number.

use qpair_memory::locks::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use qpair_scsi_wire::sense::Sense;

/// A fault of a command that reads or writes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The command is not executed, and never answered.
    LoseCommand,
    /// The command is executed, and never answered.
    LoseReply,
    /// The command is executed at once, and answered after this delay.
    Late(Duration),
    /// The command is executed, and answered twice.
    DoubleReply,
    /// The command is executed and answered. Before its answer comes one for a SMID that the driver
    /// did not use.
    WrongId,
    /// The command is not executed, and completes with this SCSI status.
    Status(u8),
    /// The command is not executed, and completes with a check condition and this sense data.
    Check(Sense),
    /// The command is not executed, and completes with this IOC status.
    IocStatus(u16),
    /// The command is not executed, and the controller stops with this fault code.
    IocFault(u16),
    /// The command is not executed, and its drive is removed.
    Pull,
}

/// A range of commands, and the fault that they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<F = Fault> {
    /// The number of the first command. Commands are numbered from 0, starting when the rules are
    /// set.
    pub first: u64,
    /// The number of commands.
    pub count: u64,
    /// The fault that each of the commands has.
    pub fault: F,
}

#[derive(Debug)]
pub(crate) struct Faults<F = Fault> {
    is_any: AtomicBool,
    rules: Mutex<Vec<Rule<F>>>,
    commands: AtomicU64,
    /// The number of commands that had a fault.
    met: AtomicU64,
    /// Whether task management requests are accepted and never answered.
    ignore_tasks: AtomicBool,
    /// The number of coming resets that the controller never completes.
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
        let mut held = self.rules.lock();
        self.commands.store(0, Ordering::Relaxed);
        self.is_any.store(!rules.is_empty(), Ordering::Release);
        *held = rules;
    }

    /// Counts a command and returns its fault; `None` if no rule selects the command.
    #[inline]
    pub(crate) fn next(&self) -> Option<F> {
        if !self.is_any.load(Ordering::Acquire) {
            return None;
        }
        let rules = self.rules.lock();
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
