//! An entry of a report: one job, or all jobs of a group.
//!
//! A merged entry counts as if one job had done all the work: counters are summed, histograms
//! added, and the time is from the first beginning to the last end.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::workload;
use crate::{CpuReport, DirectionReport, JobReport, RunReport, Sample};

pub(super) struct Entry<'a> {
    /// The jobs, at least one.
    pub(super) jobs: Vec<&'a JobReport>,
    /// The jobs merged into one, with the first job's name and options.
    pub(super) all: Cow<'a, JobReport>,
    pub(super) time_sum: Duration,
}

/// The jobs of an entry that do the same work.
pub(super) struct Kind<'a> {
    pub(super) first: &'a JobReport,
    pub(super) names: Vec<&'a str>,
    pub(super) jobs: u64,
}

impl<'a> Entry<'a> {
    pub(super) fn kinds(&self) -> Vec<Kind<'a>> {
        let mut kinds: Vec<(String, Kind<'a>)> = Vec::new();
        for job in &self.jobs {
            let work = format!("{} {:?}", workload::work(&job.job), workload::region(&job.job));
            let name = job.job.name.as_str();
            match kinds.iter_mut().find(|(known, _)| *known == work) {
                Some((_, kind)) => {
                    kind.jobs += 1;
                    if !kind.names.contains(&name) {
                        kind.names.push(name);
                    }
                }
                None => kinds.push((work, Kind { first: job, names: vec![name], jobs: 1 })),
            }
        }
        kinds.into_iter().map(|(_, kind)| kind).collect()
    }

    pub(super) fn names(&self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for job in &self.jobs {
            if !names.contains(&job.job.name.as_str()) {
                names.push(job.job.name.as_str());
            }
        }
        names
    }

    /// Returns the distinct values of `of` over all jobs, separated by spaces.
    pub(super) fn values(&self, of: impl Fn(&JobReport) -> String) -> String {
        let mut values: Vec<String> = Vec::new();
        for value in self.jobs.iter().map(|job| of(job)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values.join(" ")
    }

    pub(super) fn per_s(&self, count: u64) -> f64 {
        per_s(count, self.all.elapsed)
    }

    pub(super) fn per_io(&self, count: u64) -> f64 {
        count as f64 / self.all.ios().max(1) as f64
    }

    pub(super) fn us_per_io(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.all.ios().max(1) as f64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.all.directions.iter().map(|direction| direction.bytes).sum()
    }
}

pub(super) fn per_s(count: u64, time: Duration) -> f64 {
    if count == 0 { 0.0 } else { count as f64 / time.as_secs_f64().max(1e-9) }
}

/// Returns the run's entries, in the order of their first jobs.
pub(super) fn entries(report: &RunReport) -> Vec<Entry<'_>> {
    let mut groups: Vec<Vec<&JobReport>> = Vec::new();
    for job in &report.jobs {
        let own_group = |group: &&mut Vec<&JobReport>| {
            let first = &group[0].job;
            first.group_reporting && first.group == job.job.group
        };
        match groups.iter_mut().find(own_group).filter(|_| job.job.group_reporting) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    groups.into_iter().map(entry).collect()
}

fn entry(jobs: Vec<&JobReport>) -> Entry<'_> {
    let time_sum = jobs.iter().map(|job| job.elapsed).sum();
    let all = match jobs.as_slice() {
        [one] => Cow::Borrowed(*one),
        several => Cow::Owned(merge(several)),
    };
    Entry { jobs, all, time_sum }
}

fn merge(jobs: &[&JobReport]) -> JobReport {
    let mut all = jobs[0].clone();
    let end = jobs.iter().map(|job| job.begin + job.elapsed).max().unwrap_or_default();
    all.begin = jobs.iter().map(|job| job.begin).min().unwrap_or_default();
    all.elapsed = end.saturating_sub(all.begin);
    all.series = merge_series(jobs, all.begin);
    for job in &jobs[1..] {
        for (sum, part) in all.directions.iter_mut().zip(&job.directions) {
            add_direction(sum, part);
        }
        add_direction(&mut all.flushes, &job.flushes);
        add_cpu(&mut all.cpu, &job.cpu);
        add_classes(&mut all.depth_classes, &job.depth_classes);
        add_classes(&mut all.submit_classes, &job.submit_classes);
        add_classes(&mut all.complete_classes, &job.complete_classes);
        all.verify.blocks += job.verify.blocks;
        all.verify.wrong += job.verify.wrong;
        all.verify.errors.extend_from_slice(&job.verify.errors);
        all.passed.count += job.passed.count;
        all.passed.first = all.passed.first.take().or_else(|| job.passed.first.clone());
        all.incidents.resets += job.incidents.resets;
        all.incidents.timeouts_polled += job.incidents.timeouts_polled;
        all.in_ramp &= job.in_ramp;
        all.late_max = all.late_max.max(job.late_max);
        all.error = all.error.or_else(|| job.error.clone());
        for device in &job.devices {
            let known = |other: &qpair_block::DeviceInfo| {
                (&other.name, &other.interface, &other.mode)
                    == (&device.name, &device.interface, &device.mode)
            };
            if !all.devices.iter().any(known) {
                all.devices.push(device.clone());
            }
        }
    }
    all
}

fn add_direction(sum: &mut DirectionReport, part: &DirectionReport) {
    sum.ios += part.ios;
    sum.bytes += part.bytes;
    for (sum, part) in
        [(&mut sum.slat, &part.slat), (&mut sum.clat, &part.clat), (&mut sum.lat, &part.lat)]
    {
        sum.add(part);
    }
}

fn add_cpu(sum: &mut CpuReport, part: &CpuReport) {
    // If one of the jobs lacks a count, the sum is unknown.
    let both = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a + b);
    *sum = CpuReport {
        user: sum.user + part.user,
        system: sum.system + part.system,
        helpers_user: sum.helpers_user + part.helpers_user,
        helpers_system: sum.helpers_system + part.helpers_system,
        switches_voluntary: sum.switches_voluntary + part.switches_voluntary,
        switches_involuntary: sum.switches_involuntary + part.switches_involuntary,
        faults_major: sum.faults_major + part.faults_major,
        faults_minor: sum.faults_minor + part.faults_minor,
        system_calls: sum.system_calls + part.system_calls,
        instructions: both(sum.instructions, part.instructions),
        cycles: both(sum.cycles, part.cycles),
        cache: sum.cache.zip(part.cache).map(|(a, b)| (a.0 + b.0, a.1 + b.1)),
    };
}

fn add_classes(sum: &mut [u64; 7], part: &[u64; 7]) {
    for (sum, part) in sum.iter_mut().zip(part) {
        *sum += part;
    }
}

/// Adds samples of the same time, which is counted from `begin`.
fn merge_series(jobs: &[&JobReport], begin: Duration) -> Vec<Sample> {
    let Some(len) = jobs.iter().flat_map(|job| &job.series).map(|sample| sample.len).max() else {
        return Vec::new();
    };
    let mut slots: BTreeMap<u64, Sample> = BTreeMap::new();
    for job in jobs {
        for sample in &job.series {
            let start = (job.begin + sample.end).saturating_sub(begin + sample.len);
            let slot = (start.as_secs_f64() / len.as_secs_f64().max(1e-9)).round() as u64;
            let sum = slots.entry(slot).or_default();
            sum.end = sum.end.max((job.begin + sample.end).saturating_sub(begin));
            sum.len = sum.len.max(sample.len);
            for at in 0..3 {
                sum.ios[at] += sample.ios[at];
                sum.bytes[at] += sample.bytes[at];
                sum.slat_ns_sum[at] += sample.slat_ns_sum[at];
                sum.clat_ns_sum[at] += sample.clat_ns_sum[at];
                sum.lat_ns_sum[at] += sample.lat_ns_sum[at];
                sum.lat_ns_max[at] = sum.lat_ns_max[at].max(sample.lat_ns_max[at]);
            }
        }
    }
    slots.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn groups_are_merged_where_asked() {
        let mut report =
            samples::run(vec![samples::job("a"), samples::job("a"), samples::job("b")]);
        assert_eq!(entries(&report).len(), 3);
        for (at, job) in report.jobs.iter_mut().enumerate() {
            job.job.group = u32::from(at == 2);
            job.job.group_reporting = true;
        }
        report.jobs[1].begin += Duration::from_secs(1);
        report.jobs[1].cpu.instructions = None;
        let merged = entries(&report);
        let counts: Vec<usize> = merged.iter().map(|entry| entry.jobs.len()).collect();
        assert_eq!(counts, [2, 1]);
        let (one, all) = (&report.jobs[0], &merged[0].all);
        assert_eq!(all.ios(), 2 * one.ios());
        assert_eq!(all.directions[0].lat.len(), 2 * one.directions[0].lat.len());
        assert_eq!(all.elapsed, one.elapsed + Duration::from_secs(1));
        assert_eq!(merged[0].time_sum, 2 * one.elapsed);
        assert_eq!((all.cpu.instructions, all.cpu.user), (None, 2 * one.cpu.user));
        // The second job began one sample later.
        assert_eq!(all.series.len(), one.series.len() + 1);
        assert_eq!(all.series[0].ios[0], one.series[0].ios[0]);
        assert_eq!(all.series[1].ios[0], one.series[1].ios[0] + one.series[0].ios[0]);
        assert_eq!(all.devices.len(), one.devices.len());
    }
}
