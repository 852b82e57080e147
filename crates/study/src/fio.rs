//! Points that fio runs, to compare it with this program's load generator.

use std::process::Command;

use qpair_block::{DeviceSpec, Error, ErrorKind, Result};
use serde_json::Value;

use crate::config::Config;
use crate::jobs::Length;
use crate::lab::{FIO, Lab};
use crate::measure::{Measure, digits};

/// Runs a point by fio: reads or writes of one device, one request a call.
///
/// # Errors
/// `Unsupported` for points that fio is not asked for here, `Io` if fio fails.
pub(crate) fn run(config: &Config, lab: &Lab, length: Length, round: u32) -> Result<Measure> {
    let device = lab.devices.get(config.first as usize);
    let spec = device.map(crate::Device::spec).transpose()?;
    let (Some(DeviceSpec::File(path)), 0 | 100) = (spec, config.read_percent) else {
        let what = format!("{config}: fio can only read or write one file or block device");
        return Err(Error::new(ErrorKind::Unsupported, what));
    };
    if config.writes() && device.is_none_or(|device| !device.may_write) {
        let what = format!("{config}: the device may not be written");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let verb = if config.writes() { "write" } else { "read" };
    let order = if config.sequential { "" } else { "rand" };
    // fio separates the names of files by colons.
    let name = path.display().to_string().replace(':', "\\:");
    let millis = |seconds: f64| format!("{}ms", (seconds * 1e3).ceil());
    let cpus: Vec<String> =
        lab.cpus.iter().take(config.cores as usize).map(usize::to_string).collect();
    let output = Command::new("fio")
        .args((!config.writes()).then_some("--readonly"))
        .args(["--name=study", "--direct=1", "--thread", "--time_based"])
        .args(["--group_reporting", "--norandommap=1", "--allow_file_create=0"])
        .arg("--output-format=json")
        .arg(format!("--filename={name}"))
        .arg(format!("--rw={order}{verb}"))
        .arg(format!("--ioengine={}", config.interface.trim_start_matches(FIO)))
        .arg(format!("--offset={}", device.map_or(0, |device| device.reserved_bytes)))
        .arg(format!("--bs={}", config.block_bytes))
        .arg(format!("--iodepth={}", config.depth))
        .arg(format!("--numjobs={}", config.threads))
        .arg(format!("--cpus_allowed={}", cpus.join(",")))
        .arg(format!("--ramp_time={}", millis(length.ramp_s)))
        .arg(format!("--runtime={}", millis(length.run_s)))
        .output()
        .map_err(|cause| Error::os(cause, "running fio"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let measure = output.status.success().then(|| measure(&text, verb, round)).flatten();
    measure.ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().next().unwrap_or("its report has no I/O").to_owned();
        Error::new(ErrorKind::Io, format!("fio failed: {why}"))
    })
}

/// Reads the report of a run; `None` if it has no I/O of this direction.
fn measure(report: &str, verb: &str, round: u32) -> Option<Measure> {
    // Warnings may precede the report.
    let report: Value = serde_json::from_str(&report[report.find('{')?..]).ok()?;
    let job = report["jobs"].get(0)?;
    let done = &job[verb];
    let latency = &done["clat_ns"];
    let ios_per_s = done["iops"].as_f64().filter(|ios| *ios > 0.0)?;
    let us = |value: &Value| digits(value.as_f64().unwrap_or_default() / 1e3);
    let percent = |name: &str| job[name].as_f64().unwrap_or_default();
    let (user, system) = (percent("usr_cpu"), percent("sys_cpu"));
    let seconds = done["runtime"].as_f64()? / 1e3;
    // The shares are of the time of all jobs together.
    let busy_s = (user + system) / 100.0 * job["job_runtime"].as_f64()? / 1e3;
    let ios = done["total_ios"].as_f64()?.max(1.0);
    Some(Measure {
        round,
        seconds: digits(seconds),
        ios_per_s: digits(ios_per_s),
        bytes_per_s: digits(done["bw_bytes"].as_f64()?),
        p50_us: us(&latency["percentile"]["50.000000"]),
        p99_us: us(&latency["percentile"]["99.000000"]),
        mean_min_max_us: (us(&latency["mean"]), us(&latency["min"]), us(&latency["max"])),
        cpu_us_per_io: digits(busy_s * 1e6 / ios),
        kernel_share: digits(system / (user + system).max(1e-9)),
        switches_per_io: digits(job["ctx"].as_f64().unwrap_or_default() / ios),
        ..Measure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"fio: a warning
{"jobs": [{"error": 0, "job_runtime": 200, "usr_cpu": 10.0, "sys_cpu": 30.0, "ctx": 300, "read": {
"iops": 30000.0, "runtime": 200, "total_ios": 6000, "bw_bytes": 122880000,
"clat_ns": {"mean": 110000.0, "min": 20000, "max": 900000,
"percentile": {"50.000000": 56576, "99.000000": 200000}}}}]}"#;

    #[test]
    fn a_report_is_read() {
        let found = measure(REPORT, "read", 2).unwrap();
        assert_eq!((found.round, found.ios_per_s, found.p50_us), (2, 30_000.0, 56.576));
        // Two fifths of 200 ms for 6000 reads.
        assert!((found.cpu_us_per_io - 13.333).abs() < 1e-3 && found.kernel_share == 0.75);
        assert!(measure("", "read", 0).is_none() && measure(REPORT, "write", 0).is_none());
    }

    #[test]
    fn fio_runs_where_it_is_installed() {
        if Command::new("fio").arg("--version").output().is_err() {
            eprintln!("skipped: fio is not installed");
            return;
        }
        let build = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let path = folder.path().join("a:b");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let mut lab = crate::synthetic::lab(1, 1, &[]);
        lab.cpus = crate::lab::cpus().unwrap();
        let length = Length { ramp_s: 0.02, run_s: 0.1 };
        let of = |name: &str, lab: &Lab| run(&Config::new(name, 1).depth(4), lab, length, 1);
        assert!(of("fio:libaio", &lab).unwrap_err().to_string().contains("one file"));
        lab.devices[0].spec = path.display().to_string();
        match of("fio:psync", &lab) {
            Ok(found) => assert!(found.ios_per_s > 0.0 && found.mean_min_max_us.0 > 0.0),
            // Some file systems have no direct I/O.
            Err(error) => assert!(error.to_string().contains("fio failed"), "{error}"),
        }
        let write = Config::new("fio:psync", 1).read_percent(0);
        lab.devices[0].may_write = false;
        assert!(
            run(&write, &lab, length, 1).unwrap_err().to_string().contains("may not be written")
        );
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
        lab.devices[0].may_write = true;
        if let Ok(found) = run(&write, &lab, length, 1) {
            assert!(found.ios_per_s > 0.0);
            assert_ne!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
        }
        assert!(of("fio:nonsense", &lab).unwrap_err().to_string().contains("fio failed"));
    }
}
