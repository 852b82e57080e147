//! Runs the same load by fio, if it is installed, over the kernel with libaio, as in the second
//! paper.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};
use serde_json::Value;

use crate::load::Load;
use crate::paths::Ask;
use crate::report::Turn;
use crate::turn::{Length, part};

/// The interval of checks whether fio has ended or must be stopped.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Returns the version of the installed fio.
pub(crate) fn version() -> Option<String> {
    let output = Command::new("fio").arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Runs one turn. `folder` is the folder for fio's output.
pub(crate) fn turn(device: &Path, folder: &Path, size_bytes: u64, ask: Ask<'_>) -> Result<Turn> {
    let said = folder.join("fio.json");
    let failed =
        |what: String| Error::new(ErrorKind::Io, format!("fio on {}: {what}", device.display()));
    let mut child = Command::new("fio")
        .args(arguments(ask.load, size_bytes, ask.length, ask.seed))
        .arg(format!("--filename={}", device.display()))
        .arg(format!("--output={}", said.display()))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|cause| failed(cause.to_string()))?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|cause| failed(cause.to_string()))? {
            break status;
        }
        if (ask.stop)() {
            // The jobs of fio are threads, and end with it. If fio has just ended by itself, the
            // kill has no effect.
            let _ = child.kill();
            let _ = child.wait();
            return Ok(Turn::default());
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let text = fs::read_to_string(&said).unwrap_or_default();
    if !status.success() {
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(failed(format!("it ended with {status}: {last}")));
    }
    parse(&text, ask.load.workload.write)
        .ok_or_else(|| failed("its JSON cannot be read".to_owned()))
}

fn arguments(load: &Load, size_bytes: u64, length: Length, seed: u64) -> Vec<String> {
    let workload = load.workload;
    let order = if workload.random { "rand" } else { "" };
    let verb = if workload.write { "write" } else { "read" };
    let mut words = vec![
        "--name=floor".to_owned(),
        format!("--rw={order}{verb}"),
        format!("--bs={}", workload.block_bytes),
        format!("--iodepth={}", load.depth),
        format!("--numjobs={}", load.jobs),
        format!("--runtime={}ms", length.run.as_millis().max(1)),
        format!("--ramp_time={}ms", length.ramp.as_millis()),
        format!("--randseed={seed}"),
    ];
    let fixed = [
        "--ioengine=libaio",
        "--direct=1",
        "--thread",
        "--time_based",
        "--norandommap",
        "--group_reporting",
        "--output-format=json",
        "--lat_percentiles=1",
        "--clat_percentiles=0",
    ];
    words.extend(fixed.map(str::to_owned));
    if !workload.write {
        words.push("--readonly".to_owned());
    }
    if !workload.random {
        let bytes = part(load, 0, size_bytes).1 * u64::from(workload.block_bytes);
        words.extend([format!("--size={bytes}"), format!("--offset_increment={bytes}")]);
    }
    words
}

/// Parses fio's output for a group of jobs. Warnings may precede the JSON.
fn parse(text: &str, write: bool) -> Option<Turn> {
    let json: Value =
        serde_json::from_str(text.get(text.find("\n{").map_or(0, |at| at + 1)..)?).ok()?;
    let side = &json["jobs"][0][if write { "write" } else { "read" }];
    let number = |name: &str| side[name].as_f64();
    let us = |percent: &str| side["lat_ns"]["percentile"][percent].as_f64().unwrap_or(0.0) / 1e3;
    Some(Turn {
        ios: side["total_ios"].as_u64()?,
        seconds: number("runtime")? / 1e3,
        ios_per_s: number("iops")?,
        bytes_per_s: number("bw_bytes")?,
        mean_us: side["lat_ns"]["mean"].as_f64()? / 1e3,
        percentiles_us: ["50.000000", "90.000000", "99.000000", "99.900000"].map(us),
        ..Turn::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Workload;

    #[test]
    fn reads_what_fio_says() {
        let text = "fio: a warning {of some kind}\n{\"fio version\": \"fio-3.33\", \"jobs\": [{\"read\": {\"total_ios\": 1000, \
            \"runtime\": 500, \"iops\": 2000.0, \"bw_bytes\": 8192000, \"lat_ns\": {\"mean\": 480000.5, \"percentile\": \
            {\"50.000000\": 450000, \"99.000000\": 900000}}}, \"write\": {\"total_ios\": 0}}]}";
        let turn = parse(text, false).unwrap();
        assert_eq!((turn.ios, turn.seconds, turn.ios_per_s), (1000, 0.5, 2000.0));
        assert_eq!(turn.percentiles_us, [450.0, 0.0, 900.0, 0.0]);
        assert!((turn.mean_us - 480.0005).abs() < 1e-9);
        assert!(parse("{}", false).is_none() && parse("", true).is_none());
    }

    #[test]
    fn it_does_what_the_others_do() {
        let length = Length { ramp: Duration::ZERO, run: Duration::from_millis(250) };
        let load =
            |name: &str| Load { workload: Workload::named(name).unwrap(), depth: 2, jobs: 4 };
        let of = |name: &str| arguments(&load(name), 64 << 20, length, 3);
        let reads = of("randread");
        for word in ["--readonly", "--rw=randread", "--iodepth=2", "--numjobs=4", "--runtime=250ms"]
        {
            assert!(reads.iter().any(|it| it == word), "{word}: {reads:?}");
        }
        let writes = of("write128k");
        assert!(!writes.iter().any(|it| it == "--readonly"));
        assert!(writes.iter().any(|it| it == "--offset_increment=16777216"), "{writes:?}");
    }
}
