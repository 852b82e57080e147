//! The loads that are measured.

use std::time::Duration;

use qpair_block::format_bytes;
use serde::{Deserialize, Serialize};

/// The size, direction and order of I/Os.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// The size of an I/O in bytes.
    pub block_bytes: u32,
    /// Whether I/Os are writes.
    pub write: bool,
    /// Whether places are random. Otherwise they are sequential, in a separate part of the drive
    /// for each job.
    pub random: bool,
}

impl Workload {
    /// The workloads of the paper's tester, by name.
    pub const ALL: [(&str, Self); 6] = [
        ("randread", Self::new(4 << 10, false, true)),
        ("randwrite", Self::new(4 << 10, true, true)),
        ("read128k", Self::new(128 << 10, false, false)),
        ("write128k", Self::new(128 << 10, true, false)),
        ("read256k", Self::new(256 << 10, false, false)),
        ("write256k", Self::new(256 << 10, true, false)),
    ];

    const fn new(block_bytes: u32, write: bool, random: bool) -> Self {
        Self { block_bytes, write, random }
    }

    /// Returns the workload with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, workload)| *workload)
    }

    /// Describes the workload in words: "4KiB random read".
    #[must_use]
    pub fn words(&self) -> String {
        let order = if self.random { "random" } else { "sequential" };
        let verb = if self.write { "write" } else { "read" };
        format!("{} {order} {verb}", format_bytes(self.block_bytes.into()))
    }
}

/// A workload with its depth and number of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The size, direction and order of I/Os.
    #[serde(flatten)]
    pub workload: Workload,
    /// The number of I/Os in flight of each job.
    pub depth: u32,
    /// The number of threads, each with its own queue pair.
    pub jobs: u32,
}

/// Returns a paper's settings: the length of a turn, and the loads.
#[must_use]
pub fn paper(name: &str) -> Option<(Duration, Vec<Load>)> {
    let of = |name: &str, depth, jobs| {
        Workload::named(name).map(|workload| Load { workload, depth, jobs })
    };
    let verbs = [["randread", "read128k"], ["randwrite", "write128k"]];
    let mut loads = Vec::new();
    let seconds = match name {
        // Section 5.1 has depth 1: IOPS and latency with one job of 4 KiB, bandwidth with 16 jobs
        // of 128 KiB.
        "table2" => {
            for [random, sequential] in verbs {
                loads.extend(of(random, 1, 1));
                loads.extend(of(sequential, 1, 16));
            }
            30
        }
        // Figures 9 and 10.
        "table3" => {
            for [random, sequential] in verbs {
                loads.extend([1, 2, 4, 8, 16, 32, 64].into_iter().filter_map(|d| of(random, d, 1)));
                loads.extend([1, 2, 4, 8, 16].into_iter().filter_map(|j| of(sequential, 1, j)));
            }
            300
        }
        _ => return None,
    };
    Some((Duration::from_secs(seconds), loads))
}

/// Returns the names that [`paper`] knows.
#[must_use]
pub fn paper_names() -> &'static [&'static str] {
    &["table2", "table3"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn papers_have_their_settings() {
        let (time, loads) = paper("table2").unwrap();
        assert_eq!(time.as_secs(), 30);
        let find = |name: &str| {
            let workload = Workload::named(name).unwrap();
            *loads.iter().find(|load| load.workload == workload).unwrap()
        };
        assert_eq!((find("randread").depth, find("randread").jobs), (1, 1));
        assert_eq!((find("write128k").depth, find("write128k").jobs), (1, 16));
        assert_eq!(paper("table3").unwrap().1.len(), 24);
        assert!(paper_names().iter().all(|name| paper(name).is_some()));
        assert!(paper("table4").is_none());
        assert_eq!(find("randwrite").workload.words(), "4KiB random write");
    }
}
