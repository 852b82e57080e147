//! The five papers: for each figure or section a file, with its experiments, its findings and their
//! tests. [`PAPERS`] lists them all.
//!
//! Always holds: the name of a finding is unique and begins with its paper's, and
//! `docs/design/study.md` has the same findings, which a test checks.

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
use crate::finding::Row;

/// Names that the files of figures use.
mod prelude {
    pub(super) use super::Part;
    pub(super) use crate::config::{Assignment, Channels, Config, Pace};
    pub(super) use crate::experiment::{
        Experiment, Plan, Scale, by_interface, cores_words, counts, series, several_devices,
    };
    pub(super) use crate::finding::Need::{self, *};
    pub(super) use crate::finding::Row::{self, Tested};
    pub(super) use crate::finding::{Finding, Judged, untested};
    pub(super) use crate::lab::{
        BARE_CALL, Device, Effort, LIBAIO_CALLS, Lab, SOFT_DRIVE, SYNC, UNREGISTERED, USER_SPACE,
        is_kernel_s,
    };
    pub(super) use crate::measure::Metric::{self, *};
    pub(super) use crate::outcome::Outcome;
    pub(super) use crate::outcome::Threshold::{AtLeast, AtMost, Between};
    pub(super) use crate::store::StoreUse;
    pub(super) use crate::store::StoreWork::{self, Lookup, Tpcc};
    pub(super) use crate::verdict::Evidence;
    pub(super) use crate::view::{View, all_configs, configs};
}

/// A paper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paper {
    /// The short name, with which the names of the findings begin.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    parts: &'static [Part],
}

/// A figure or a section of a paper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) experiments: &'static [Experiment],
    pub(crate) rows: &'static [Row],
}

/// All papers with all their parts, in the order of the report.
pub(crate) const PAPERS: [Paper; 5] = [
    Paper {
        id: "S1",
        title: "Understanding Modern Storage APIs: libaio, SPDK and io_uring (SYSTOR 2022)",
        parts: &[
            s1::figure2::PART,
            s1::figure3::PART,
            s1::figure4::PART,
            s1::figure5::PART,
            s1::lessons::PART,
        ],
    },
    Paper {
        id: "S2",
        title: "A user-space SCSI I/O stack on SPDK, and HwPerfIO (2025)",
        parts: &[
            s2::figure8::PART,
            s2::section5::PART,
            s2::figure3::PART,
            s2::figure9::PART,
            s2::figure12::PART,
        ],
    },
    Paper {
        id: "S3",
        title: "What Modern NVMe Storage Can Do, And How To Exploit It (VLDB 2023)",
        parts: &[
            s3::figure2::PART,
            s3::figure3::PART,
            s3::figure4::PART,
            s3::figure6::PART,
            s3::figure10::PART,
            s3::figure11::PART,
            s3::section4::PART,
            s3::section2::PART,
            s3::figure12::PART,
            s3::figure15::PART,
            s3::figure13::PART,
            s3::figure14::PART,
            s3::figure16::PART,
            s3::figure17::PART,
        ],
    },
    Paper {
        id: "S4",
        title: "Exploiting SSD-Arrays with Asynchronous I/O (2021)",
        parts: &[
            s4::sync::PART,
            s4::outstanding::PART,
            s4::interval::PART,
            s4::cost::PART,
            s4::writes::PART,
            s4::section4::PART,
        ],
    },
    Paper {
        id: "S5",
        title: "SPDK and io_uring as block devices (SPDK community)",
        parts: &[s5::figure5::PART, s5::figure6::PART, s5::figure3::PART, s5::text::PART],
    },
];

fn parts() -> impl Iterator<Item = &'static Part> {
    const ALL: &[Paper] = &PAPERS;
    ALL.iter().flat_map(|paper| paper.parts)
}

/// Returns all experiments, in the order of the report.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    parts().flat_map(|part| part.experiments)
}

/// Returns the experiment with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    experiments().find(|experiment| experiment.name == name)
}

/// Returns all findings, in the order of the report.
pub fn catalogue() -> impl Iterator<Item = &'static Row> {
    parts().flat_map(|part| part.rows)
}
