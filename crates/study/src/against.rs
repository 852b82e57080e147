//! The last study of a machine, with which a study is compared.

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::outcome::{Outcome, Threshold};
use crate::report::StudyReport;

/// The parts of another study that comparisons need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// The start of that study, in seconds since 1970.
    pub begun_s: u64,
    pub boot: Boot,
    /// The outcome of each finding.
    pub outcomes: Vec<(String, Outcome)>,
    /// The values of that study and of those before it, if they ran in the state of this study.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<EarlierValues>,
    /// Requests a second of each point, if that study ran in another state of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ios_per_s: Vec<(Config, f64)>,
}

/// The values of a part of a finding in earlier studies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierValues {
    pub finding: String,
    /// The index of the part in the evidence. Its description may differ: a finding may choose
    /// another interface, or another figure, on another day.
    pub part: usize,
    pub wanted: Threshold,
    /// The lowest and the highest value.
    pub range: (f64, f64),
}

impl Against {
    /// Returns the lowest and the highest value of a part of a finding in earlier studies.
    pub(crate) fn range(
        &self,
        finding: &str,
        part: usize,
        wanted: Option<Threshold>,
    ) -> Option<(f64, f64)> {
        let is_it = |one: &&EarlierValues| {
            one.finding == finding && one.part == part && wanted == Some(one.wanted)
        };
        self.sessions.iter().find(is_it).map(|one| one.range)
    }
}

/// Returns the values of a study and of those before it.
fn sessions(of: &StudyReport) -> Vec<EarlierValues> {
    let values = |finding: &str, part: usize, of: &crate::Evidence| {
        of.low?;
        let range = of.sessions.unwrap_or((of.mid, of.mid));
        Some(EarlierValues { finding: finding.to_owned(), part, wanted: of.wanted?, range })
    };
    let parts = |verdict: &crate::Verdict| -> Vec<EarlierValues> {
        let parts = verdict.evidence.iter().enumerate();
        parts.filter_map(|(part, of)| values(&verdict.finding, part, of)).collect()
    };
    of.verdicts.iter().flat_map(parts).collect()
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
        // Another kernel or another program is expected to have other values.
        let is_same_state = boot == Boot::of(&self.machine)
            && (&self.machine.kernel, &self.program) == (&other.machine.kernel, &other.program);
        let sessions = if is_same_state { sessions(other) } else { Vec::new() };
        let outcome = |one: &crate::Verdict| (one.finding.clone(), one.outcome);
        let outcomes = other.verdicts.iter().map(outcome).collect();
        self.against =
            Some(Against { begun_s: other.begun_s, boot, outcomes, sessions, ios_per_s });
        self.judge();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::synthetic::{slower, speed, study_of};

    fn study(k_times_slower: f64) -> StudyReport {
        let experiments = vec![crate::find("s1-fig2").unwrap()];
        study_of(
            experiments,
            2,
            1,
            &["libaio", "io_uring", "io_uring+k"],
            |config: &Config, round| {
                let mut measure = speed(config, round, 100e3);
                if config.interface == "io_uring+k" && config.cores == 1 {
                    slower(&mut measure, k_times_slower);
                }
                Some(measure)
            },
        )
    }

    #[test]
    fn what_differs_from_the_last_study_is_told() {
        let (last, mut report) = (study(1.0), study(13.0));
        report.machine.kernel = Some("another".to_owned());
        report.compare_with(&last).unwrap();
        let of = |report: &StudyReport, name: &str| {
            let found = report.verdicts.iter().find(|one| one.finding == name);
            found.unwrap().clone()
        };
        let collapse = of(&report, "s1-kernel-thread-collapses");
        assert_eq!(collapse.before, Some(Outcome::DoesNotHold));
        assert_eq!(of(&report, "s1-shallow-alike").before, None);
        let text = crate::to_text(&report).join("\n");
        let words = "s1-kernel-thread-collapses: holds, differs from the last study (\"does not hold\"), and is reversed";
        assert!(text.contains(words), "{text}");
        let html = crate::to_html(&report, "today").unwrap();
        assert!(html.contains("differs from the last study (&quot;does not hold&quot;)"));
        // The comparison is stored, and its points only of another boot.
        let again = StudyReport::from_json(&report.to_json().unwrap()).unwrap();
        assert_eq!(again.against, report.against);
        assert_eq!(again.verdicts, report.verdicts);
        assert!(again.against.unwrap().ios_per_s.is_empty());
        // A study that does not differ says nothing.
        report.machine.kernel = None;
        report.compare_with(&study(13.0)).unwrap();
        assert!(!crate::to_text(&report).join("\n").contains("differs from"));
        let mut other = study(1.0);
        other.devices.push(other.devices[0].clone());
        assert!(report.compare_with(&other).unwrap_err().contains("other devices"));
    }

    /// Ten studies of one machine, whose interfaces differ from day to day by more than they do
    /// within a study. Alone, some of these studies contradict each other.
    #[test]
    fn no_verdict_is_reversed_between_days_of_one_machine() {
        let day = |seed: u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut drift = || (0.3 * (random.f64() - 0.5)).exp();
            let (uring, thread) = (drift(), drift());
            let experiments = vec![crate::find("s1-fig2").unwrap()];
            let names = ["posix", "libaio", "io_uring", "io_uring+k"];
            study_of(experiments, 2, 1, &names, |config: &Config, round| {
                let mut measure = speed(config, round, 100e3);
                match config.interface.as_str() {
                    "io_uring" => slower(&mut measure, uring),
                    "io_uring+k" => slower(&mut measure, thread),
                    _ => {}
                }
                Some(measure)
            })
        };
        let reversed = |studies: &[StudyReport]| {
            let of = |study: &StudyReport, name: &str| {
                study.verdicts.iter().find(|one| one.finding == name).unwrap().outcome
            };
            let names: Vec<String> =
                studies[0].verdicts.iter().map(|one| one.finding.clone()).collect();
            let is_reversed = |name: &&String| {
                let pair =
                    |a: &StudyReport, b: &StudyReport| of(a, name).is_reverse_of(of(b, name));
                studies.iter().any(|a| studies.iter().any(|b| pair(a, b)))
            };
            names.iter().filter(is_reversed).cloned().collect::<Vec<_>>()
        };
        let mut studies: Vec<StudyReport> = (1..=10).map(day).collect();
        assert!(reversed(&studies).len() >= 2, "{:?}", reversed(&studies));
        for at in 1..studies.len() {
            let (before, rest) = studies.split_at_mut(at);
            rest[0].compare_with(&before[at - 1]).unwrap();
        }
        assert_eq!(reversed(&studies), Vec::<String>::new());
        // What each day shows alike stays decided.
        let decided = |study: &StudyReport| {
            let is_decided = |one: &&crate::Verdict| one.outcome < Outcome::Undecided;
            study.verdicts.iter().filter(is_decided).count()
        };
        let (first, last) = (decided(&studies[0]), decided(&studies[9]));
        assert!(last * 2 > first, "{first} were decided on the first day, {last} on the last");
    }
}
