//! All findings of the papers, one row each: the test that a study makes, or the requirements of
//! such a test.
//!
//! Always holds: the name of a row is unique, and `docs/design/study.md` has the same rows, which a
//! test checks.

mod s1;
mod s2;
mod s3;
mod s4;
mod s5;

use serde::Serialize;

use super::Finding;

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
    /// Virtual machines.
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

/// Returns all rows, in the order of the papers.
pub fn catalogue() -> impl Iterator<Item = &'static Row> {
    [s1::ROWS, s2::ROWS, s3::ROWS, s4::ROWS, s5::ROWS].into_iter().flatten()
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

const fn untested(
    name: &'static str,
    source: &'static str,
    claim: &'static str,
    needs: &'static [Need],
) -> Row {
    Row::Untested(Untested { name, source, claim, needs })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// The mark before the table in the design page.
    const BEGIN: &str = "<!-- findings: begin -->\n";
    const END: &str = "<!-- findings: end -->";

    fn table() -> String {
        let mut out = "| Finding | Where | Claim | Here |\n|---|---|---|---|\n".to_owned();
        for row in catalogue() {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} |",
                row.name(),
                row.source(),
                row.claim(),
                row.here()
            );
        }
        out
    }

    /// `QPAIR_WRITE_DOCS=1 cargo test -p qpair-study the_design_page` writes the table anew.
    #[test]
    fn the_design_page_has_the_same_rows() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/study.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (there, after) = rest.split_once(END).unwrap();
        if std::env::var_os("QPAIR_WRITE_DOCS").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
            return;
        }
        assert!(there == table(), "write it anew with QPAIR_WRITE_DOCS=1");
    }

    #[test]
    fn every_finding_has_one_row() {
        let of = |paper: &str| {
            catalogue().filter(|row| row.name().starts_with(paper) && !is_our_own(row)).count()
        };
        // As many as the papers' findings were counted.
        assert_eq!(["s1-", "s2-", "s3-", "s4-", "s5-"].map(of), [30, 13, 45, 10, 5]);
        let rows: Vec<&Row> = catalogue().collect();
        for (at, row) in rows.iter().enumerate() {
            assert!(rows[..at].iter().all(|other| other.name() != row.name()), "{}", row.name());
            assert!(row.claim().ends_with('.') && !row.source().is_empty(), "{}", row.name());
            assert_eq!(row.tested().is_none(), row.because().is_some(), "{}", row.name());
            assert!(!table().is_empty() && !row.here().contains('|'), "{}", row.name());
        }
    }

    /// Whether the paper considers the question and gives no result.
    fn is_our_own(row: &Row) -> bool {
        row.name() == "s4-registering-saves"
    }
}
