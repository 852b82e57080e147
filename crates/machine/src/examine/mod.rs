//! What is well, what could be better, and the command that mends it.
//!
//! Findings are made from what was read, and from nothing else: no command runs, no setting changes. A setting that could
//! not be read gives a finding that says so, not a guess.

mod command;
mod device;
mod kernel;
mod memory;
mod processors;
mod user_space;

use crate::device::Device;
use crate::finding::{Finding, Severity};
use crate::machine::Machine;

/// Examines a machine and some of its devices.
#[must_use]
pub fn examine(machine: &Machine, devices: &[Device]) -> Vec<Finding> {
    let mut findings = kernel::examine(machine);
    findings.extend(processors::examine(machine));
    findings.extend(memory::examine(machine));
    findings.extend(user_space::examine(machine));
    findings.extend(devices.iter().flat_map(|device| device::examine(machine, device)));
    findings
}

/// What could not be read, and what that means.
fn not_available(area: crate::finding::Area, subject: &str, why: &str) -> Finding {
    Finding::new(area, subject, "not available", Severity::Info, why)
}
