//! Histograms over time, in the format of fio's `write_hist_log`.
//!
//! A line is `time (ms), direction, block size, count, count, ...`: the requests of the interval
//! that ends then, in each of fio's 1856 buckets of `clat`, or in fewer buckets of 2, 4, ... 64 of
//! these each (`log_hist_coarseness`).

use std::fmt::Write as _;

use crate::JobReport;
use crate::run::histograms::BUCKETS;

use super::fio::milliseconds;

pub(super) fn log(job: &JobReport, coarseness: u32) -> String {
    let mut out = String::new();
    let mut counts = vec![0_u64; BUCKETS >> coarseness];
    for sample in &job.histograms {
        counts.fill(0);
        for (bucket, count) in &sample.buckets {
            if let Some(sum) = counts.get_mut(usize::from(*bucket) >> coarseness) {
                *sum += u64::from(*count);
            }
        }
        let (end, direction) = (milliseconds(sample.end), sample.direction as usize);
        let _ = write!(out, "{end}, {direction}, {}", sample.block_bytes);
        for count in &counts {
            let _ = write!(out, ", {count}");
        }
        out.push('\n');
    }
    out
}
