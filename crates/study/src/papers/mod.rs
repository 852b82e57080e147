//! The five papers: for each figure or section a file, with its experiments, its findings and their
//! tests. [`PAPERS`] lists them all.
//!
//! Invariant: the name of a finding is unique and begins with the name of its paper.
//! `docs/design/study.md` has the same findings, which a test checks.

#[cfg(test)]
mod cases;
#[cfg(test)]
mod defects;
mod s1;
mod s2;
mod s3;
mod s4;
mod s5;
#[cfg(test)]
mod tests;

use crate::experiment::Experiment;
use crate::finding::Finding;

/// Names that the files of figures use.
mod prelude {
    pub(super) use crate::config::{Assignment, Channels, Config, Pace};
    pub(super) use crate::experiment::{
        Experiment, Plan, Scale, Series, by_interface, cores_words, counts, series, several_devices,
    };
    pub(super) use crate::finding::{Finding, Judged};
    pub(super) use crate::lab::{
        BARE_CALL, DURABLE, DURABLE_RAW, Device, EMPTY_POLL, Effort, FIO, FLOOR, LIBAIO_CALLS, Lab,
        SOFT_DRIVE, SOFT_FLOOR, STORE_KERNEL, SYNC, TASK_SWITCH, THREAD_SWITCH, UNREGISTERED,
        USER_SCSI, USER_SPACE, is_kernel_s,
    };
    pub(super) use crate::measure::Metric::{self, *};
    pub(super) use crate::need::Need::{self, *};
    pub(super) use crate::outcome::Outcome;
    pub(super) use crate::outcome::Threshold::{self, AtLeast, AtMost, Between};
    pub(super) use crate::store::StoreUse;
    pub(super) use crate::store::StoreWork::{self, Lookup, Tpcc};
    pub(super) use crate::verdict::Evidence;
    pub(super) use crate::view::{View, all_configs, configs};
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Paper {
    /// The short name, with which the names of the findings begin.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    parts: &'static [Part],
}

/// A figure or a section of a paper.
#[derive(Clone, Copy, Debug)]
struct Part {
    experiments: &'static [Experiment],
    rows: &'static [Finding],
}

/// All papers with all their parts, in the order of the report.
pub(crate) static PAPERS: [Paper; 5] = [
    Paper {
        id: "S1",
        title: "Understanding Modern Storage APIs: libaio, SPDK and io_uring (SYSTOR 2022)",
        parts: &[
            Part { experiments: s1::figure2::EXPERIMENTS, rows: s1::figure2::ROWS },
            Part { experiments: s1::figure3::EXPERIMENTS, rows: s1::figure3::ROWS },
            Part { experiments: s1::figure4::EXPERIMENTS, rows: s1::figure4::ROWS },
            Part { experiments: s1::figure5::EXPERIMENTS, rows: s1::figure5::ROWS },
            Part { experiments: &[], rows: s1::lessons::ROWS },
        ],
    },
    Paper {
        id: "S2",
        title: "A user-space SCSI I/O stack on SPDK, and HwPerfIO (2025)",
        parts: &[
            Part { experiments: s2::figure8::EXPERIMENTS, rows: s2::figure8::ROWS },
            Part { experiments: s2::section5::EXPERIMENTS, rows: s2::section5::ROWS },
            Part { experiments: s2::figure3::EXPERIMENTS, rows: s2::figure3::ROWS },
            Part { experiments: s2::figure9::EXPERIMENTS, rows: s2::figure9::ROWS },
            Part { experiments: s2::figure12::EXPERIMENTS, rows: s2::figure12::ROWS },
        ],
    },
    Paper {
        id: "S3",
        title: "What Modern NVMe Storage Can Do, And How To Exploit It (VLDB 2023)",
        parts: &[
            Part { experiments: s3::figure2::EXPERIMENTS, rows: s3::figure2::ROWS },
            Part { experiments: s3::figure3::EXPERIMENTS, rows: s3::figure3::ROWS },
            Part { experiments: s3::figure4::EXPERIMENTS, rows: s3::figure4::ROWS },
            Part { experiments: s3::figure6::EXPERIMENTS, rows: s3::figure6::ROWS },
            Part { experiments: s3::figure10::EXPERIMENTS, rows: s3::figure10::ROWS },
            Part { experiments: s3::figure11::EXPERIMENTS, rows: s3::figure11::ROWS },
            Part { experiments: s3::section4::EXPERIMENTS, rows: s3::section4::ROWS },
            Part { experiments: s3::section2::EXPERIMENTS, rows: s3::section2::ROWS },
            Part { experiments: s3::figure12::EXPERIMENTS, rows: s3::figure12::ROWS },
            Part { experiments: s3::figure15::EXPERIMENTS, rows: s3::figure15::ROWS },
            Part { experiments: s3::figure13::EXPERIMENTS, rows: s3::figure13::ROWS },
            Part { experiments: s3::ladder::EXPERIMENTS, rows: &[] },
            Part { experiments: s3::figure14::EXPERIMENTS, rows: s3::figure14::ROWS },
            Part { experiments: s3::figure16::EXPERIMENTS, rows: s3::figure16::ROWS },
            Part { experiments: s3::figure17::EXPERIMENTS, rows: s3::figure17::ROWS },
        ],
    },
    Paper {
        id: "S4",
        title: "Exploiting SSD-Arrays with Asynchronous I/O (2021)",
        parts: &[
            Part { experiments: s4::sync::EXPERIMENTS, rows: s4::sync::ROWS },
            Part { experiments: s4::outstanding::EXPERIMENTS, rows: s4::outstanding::ROWS },
            Part { experiments: s4::interval::EXPERIMENTS, rows: s4::interval::ROWS },
            Part { experiments: s4::cost::EXPERIMENTS, rows: s4::cost::ROWS },
            Part { experiments: s4::writes::EXPERIMENTS, rows: s4::writes::ROWS },
            Part { experiments: s4::section4::EXPERIMENTS, rows: s4::section4::ROWS },
        ],
    },
    Paper {
        id: "S5",
        title: "SPDK and io_uring as block devices (SPDK community)",
        parts: &[
            Part { experiments: s5::figure5::EXPERIMENTS, rows: s5::figure5::ROWS },
            Part { experiments: s5::figure6::EXPERIMENTS, rows: s5::figure6::ROWS },
            Part { experiments: s5::figure3::EXPERIMENTS, rows: s5::figure3::ROWS },
            Part { experiments: s5::text::EXPERIMENTS, rows: s5::text::ROWS },
        ],
    },
];

fn parts() -> impl Iterator<Item = &'static Part> {
    PAPERS.iter().flat_map(|paper| paper.parts)
}

/// Returns all experiments, in the order of the report.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    parts().flat_map(|part| part.experiments)
}

/// Returns the commands that repeat an experiment, with examples of its devices.
#[must_use]
pub fn commands(experiment: &Experiment) -> Vec<String> {
    let mut known = s2::COMMANDS.iter().chain(&s5::COMMANDS);
    let own = known.find(|(name, _)| *name == experiment.name);
    match own {
        Some((_, commands)) => commands.iter().map(|&command| command.to_owned()).collect(),
        None => vec![format!("qpair study --experiment {}", experiment.name)],
    }
}

/// Returns the experiment with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    experiments().find(|experiment| experiment.name == name)
}

/// Returns all findings, in the order of the report.
pub fn catalogue() -> impl Iterator<Item = &'static Finding> {
    parts().flat_map(|part| part.rows)
}
