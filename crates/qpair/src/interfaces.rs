//! The choice of the kernel interface to try, and of the next one if it does not work.

use std::cell::RefCell;

use qpair_engine::{Error, ErrorKind};
use qpair_kernel::{Choice, Interface, Mode};

use crate::outcome::PassedOver;

/// The search for an interface that works, from opening the first file to a running worker.
pub(crate) struct Interfaces {
    asked: Mode,
    /// The interface for the next attempt.
    pub(crate) current: Mode,
    /// The earliest interface that the files of this attempt run on.
    in_use: RefCell<Option<Interface>>,
    passed_over: RefCell<Vec<PassedOver>>,
    why: RefCell<Option<String>>,
}

impl Interfaces {
    pub(crate) fn new(asked: Mode) -> Self {
        Self {
            asked,
            current: asked,
            in_use: RefCell::default(),
            passed_over: RefCell::default(),
            why: RefCell::default(),
        }
    }

    /// Notes the interface on which a file was opened.
    pub(crate) fn note(&self, choice: &Choice) {
        for (interface, reason) in &choice.reasons {
            self.pass_over(*interface, reason.to_string());
        }
        self.why.borrow_mut().clone_from(&choice.why);
        let mut in_use = self.in_use.borrow_mut();
        *in_use = match *in_use {
            Some(other) if place(other) <= place(choice.interface) => Some(other),
            _ => Some(choice.interface),
        };
    }

    fn pass_over(&self, interface: Interface, reason: String) {
        let mut passed_over = self.passed_over.borrow_mut();
        if !passed_over.iter().any(|known| known.interface == interface) {
            passed_over.push(PassedOver { interface, reason });
        }
    }

    /// Handles a failed attempt: selects the next interface, if the user did not choose one and the
    /// interface may be the cause. Returns `false` otherwise.
    pub(crate) fn next(&mut self, error: &Error) -> bool {
        let may_be_its =
            matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Limit | ErrorKind::Denied);
        let failed = match self.current.interface {
            Interface::Auto => self.in_use.take(),
            named => Some(named),
        };
        // There is no alternative to an interface that is the only one for its device (NVMe
        // passthrough).
        let failed = failed.filter(|failed| Interface::CONCRETE.contains(failed));
        let ours = self.asked.interface == Interface::Auto;
        let (true, Some(failed)) = (may_be_its && ours, failed) else {
            return false;
        };
        if failed == Interface::IoUring
            && self.current.registered_buffers
            && error.kind() == ErrorKind::Limit
        {
            // Most users may lock only little memory. Rings without registered memory are still the
            // best choice then.
            self.current = Mode { interface: failed, registered_buffers: false, ..self.asked };
            return true;
        }
        let Some(next) = Interface::CONCRETE.get(place(failed) + 1) else { return false };
        self.pass_over(failed, error.to_string());
        self.current = Mode { interface: *next, ..self.asked };
        true
    }

    /// Returns the reason for the interface of the last file that was opened.
    pub(crate) fn why(&self) -> Option<String> {
        self.why.borrow().clone()
    }

    pub(crate) fn into_passed_over(self) -> Vec<PassedOver> {
        self.passed_over.into_inner()
    }
}

/// Returns the position of an interface in the order of trying.
fn place(interface: Interface) -> usize {
    Interface::CONCRETE.iter().position(|known| *known == interface).unwrap_or(0)
}
