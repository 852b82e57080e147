//! Findings about a machine: good settings, possible improvements, and the commands that make them.
//!
//! Findings depend only on the data that was read: no command runs, and no setting changes. If a
//! setting could not be read, a finding says so, without a guess.

mod command;
mod device;
mod kernel;
mod memory;
mod processors;
mod user_space;

use crate::device::Device;
use crate::finding::{Finding, Severity};
use crate::machine::Machine;

#[must_use]
pub fn examine(machine: &Machine, devices: &[Device]) -> Vec<Finding> {
    let mut findings = kernel::examine(machine);
    findings.extend(processors::examine(machine));
    findings.extend(memory::examine(machine));
    findings.extend(user_space::examine(machine));
    findings.extend(devices.iter().flat_map(|device| device::examine(machine, device)));
    findings
}

/// Returns a finding about something that could not be read, with the consequences.
fn not_available(area: crate::finding::Area, subject: &str, why: &str) -> Finding {
    Finding::new(area, subject, "not available", Severity::Info, why)
}
