//! The last study of a machine, with which a study is compared.

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::outcome::Outcome;
use crate::report::StudyReport;

/// The parts of another study that comparisons need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// The start of that study, in seconds since 1970.
    pub begun_s: u64,
    pub boot: Boot,
    /// The outcome of each finding.
    pub outcomes: Vec<(String, Outcome)>,
    /// Requests a second of each point, if that study ran in another state of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ios_per_s: Vec<(Config, f64)>,
}

/// The state of a machine that only a boot changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// Whether bugs of the processor are mitigated; `None`: not known, or there are none.
    pub mitigated: Option<bool>,
    /// Whether there is an active IOMMU.
    pub iommu: Option<bool>,
}

impl Boot {
    pub(crate) fn of(machine: &qpair_machine::Machine) -> Self {
        let bugs = &machine.processors.mitigations;
        let mitigated = bugs.iter().any(|bug| bug.state.contains("Mitigation"));
        Self {
            mitigated: (!bugs.is_empty()).then_some(mitigated),
            iommu: machine.iommu.groups.map(|groups| groups > 0),
        }
    }
}

impl StudyReport {
    /// Compares the study with an earlier one, and derives the verdicts again.
    ///
    /// # Errors
    /// The reason, if the studies are of other cores or devices.
    pub fn compare_with(&mut self, other: &Self) -> Result<(), String> {
        if self.cores != other.cores {
            return Err(format!("it is of {} cores, not {}", other.cores, self.cores));
        }
        let devices = |of: &Self| -> Vec<(bool, Vec<String>)> {
            let name = |one: &crate::Device| match one.own {
                true => (true, one.disks.clone()),
                false => (false, vec![one.spec.clone()]),
            };
            of.devices.iter().map(name).collect()
        };
        if devices(self) != devices(other) {
            return Err("it is of other devices".to_owned());
        }
        let boot = Boot::of(&other.machine);
        let ios_per_s = match boot == Boot::of(&self.machine) {
            true => Vec::new(),
            false => other
                .points
                .iter()
                .filter_map(|point| {
                    let speed = point.interval(crate::Metric::IosPerS)?.mid;
                    Some((point.config.clone(), speed))
                })
                .collect(),
        };
        let outcome = |one: &crate::Verdict| (one.finding.clone(), one.outcome);
        let outcomes = other.verdicts.iter().map(outcome).collect();
        self.against = Some(Against { begun_s: other.begun_s, boot, outcomes, ios_per_s });
        self.judge();
        Ok(())
    }
}
