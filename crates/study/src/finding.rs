//! Findings of the papers: a test that a study makes, or the requirements of such a test.

use serde::Serialize;

use crate::verdict::Evidence;
use crate::view::View;

/// A finding of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// The name of the finding in this project.
    pub name: &'static str,
    /// The paper and figure.
    pub source: &'static str,
    /// The experiment that shows it.
    pub experiment: &'static str,
    /// The claim of the paper.
    pub claim: &'static str,
    /// The test made here, with the threshold.
    pub test: &'static str,
    pub(crate) judge: fn(&View<'_>) -> Judged,
}

/// The evidence for or against a finding, or the reason why the study could not test it.
pub(crate) type Judged = Result<Vec<Evidence>, String>;

/// A finding of a paper.
#[derive(Clone, Copy, Debug)]
pub enum Row {
    /// A finding that a study tests.
    Tested(Finding),
    /// A finding that no study can test.
    Untested(Untested),
}

/// A finding that a study cannot test.
#[derive(Clone, Copy, Debug)]
pub struct Untested {
    name: &'static str,
    source: &'static str,
    claim: &'static str,
    needs: &'static [Need],
}

/// A requirement that a study does not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// More or other drives.
    Drives,
    /// More cores.
    Cores,
    /// Polled completions in the kernel.
    PollQueues,
    /// Performance counters.
    Counters,
    /// Both drivers on the same drive.
    SameDrive,
    /// The floor, a kernel module.
    Module,
    /// Competing engines.
    Peers,
    /// The storage engine.
    Engine,
    /// A SCSI card.
    HostAdapter,
    VirtualMachines,
    /// Other kernel options, which need a reboot.
    Reboot,
    /// ext4, btrfs and their journals.
    FileSystems,
    /// A drive in a bad state.
    FilledDrive,
    /// Another load generator.
    Fio,
    /// The vendor's data sheet.
    DataSheet,
    /// A stated result: the paper considers the question and gives no result.
    Outcome,
    /// An experiment that nobody has written yet.
    Experiment,
}

impl Need {
    /// Returns the requirement in words, to follow "it needs".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Drives => "several drives",
            Self::Cores => "several cores for each drive",
            Self::PollQueues => "poll queues in the kernel's driver",
            Self::Counters => "hardware counters",
            Self::SameDrive => {
                "the kernel's and the user-space driver on the same drive in one study"
            }
            Self::Module => "a kernel module that drives the controller (qpair floor DEVICE)",
            Self::Peers => "other storage engines beside ours",
            Self::Engine => "the storage engine, which a study does not run",
            Self::HostAdapter => "a SCSI host adapter",
            Self::VirtualMachines => "virtual machines on the drive",
            Self::Reboot => "two boots with other kernel options",
            Self::FileSystems => "file systems that root makes for it",
            Self::FilledDrive => "a flash drive that may be written over several times",
            Self::Fio => "the program fio",
            Self::DataSheet => "the drive's data sheet",
            Self::Outcome => {
                "a result in the paper to compare with (s4-variants shows what was varied)"
            }
            Self::Experiment => "an experiment that is not written yet",
        }
    }
}

impl Row {
    /// Returns the name of the finding.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tested(finding) => finding.name,
            Self::Untested(row) => row.name,
        }
    }

    /// Returns the paper and the place in the paper.
    #[must_use]
    pub fn source(&self) -> &'static str {
        match self {
            Self::Tested(finding) => finding.source,
            Self::Untested(row) => row.source,
        }
    }

    /// Returns the claim of the paper.
    #[must_use]
    pub fn claim(&self) -> &'static str {
        match self {
            Self::Tested(finding) => finding.claim,
            Self::Untested(row) => row.claim,
        }
    }

    /// Returns the test, if there is one.
    #[must_use]
    pub fn tested(&self) -> Option<&Finding> {
        match self {
            Self::Tested(finding) => Some(finding),
            Self::Untested(_) => None,
        }
    }

    /// Returns the requirements of a test; empty if the finding is tested.
    #[must_use]
    pub fn needs(&self) -> &'static [Need] {
        match self {
            Self::Tested(_) => &[],
            Self::Untested(row) => row.needs,
        }
    }

    /// Returns the reason why there is no test; `None` if there is one.
    #[must_use]
    pub fn because(&self) -> Option<String> {
        let words: Vec<&str> = self.needs().iter().map(|need| need.words()).collect();
        (!words.is_empty()).then(|| format!("it needs {}", words.join(", and ")))
    }

    /// Describes in a sentence how a study treats the finding.
    #[must_use]
    pub fn here(&self) -> String {
        match self {
            Self::Tested(finding) => format!("{}: {}", finding.experiment, finding.test),
            Self::Untested(_) => {
                format!("cannot be tested here, because {}", self.because().unwrap_or_default())
            }
        }
    }
}

pub(crate) const fn untested(
    name: &'static str,
    source: &'static str,
    claim: &'static str,
    needs: &'static [Need],
) -> Row {
    Row::Untested(Untested { name, source, claim, needs })
}
