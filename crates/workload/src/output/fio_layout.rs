//! Compares our JSON with that of the real fio, key by key and type by type, in both directions.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{fio_json, fio_json_text, samples};
use crate::{DirectionReport, JobReport, Steadiness, SteadyGoal, SteadyOf, SteadyReport};

/// Collects every key by its path, with the type of its value.
fn keys(value: &Value, path: &str, out: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(number) if number.is_f64() => "number with a fraction",
        Value::Number(_) => "whole number",
        Value::Bool(_) | Value::Null => "other",
    };
    out.insert(path.to_owned(), kind);
    match value {
        // Skip the user's options, the machine's disks, and our own keys, which fio does not have.
        _ if path.ends_with("options") || path == "/disk_util" => {}
        Value::Object(pairs) => {
            for (key, value) in pairs.iter().filter(|(key, _)| *key != "qpair") {
                let key = if path.ends_with("/bins") { "NS" } else { key };
                keys(value, &format!("{path}/{key}"), out);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, &format!("{path}[]"), out)),
        _ => {}
    }
}

/// Runs fio with these options and returns its JSON; `None` if fio 3.33 is not installed.
fn fio(options: &str) -> Option<Value> {
    let version = Command::new("fio").arg("--version").output();
    match version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()) {
        Ok(version) if version.starts_with("fio-3.33") => {}
        Ok(version) => {
            eprintln!("skipped: the layout is that of fio-3.33, here is {}", version.trim());
            return None;
        }
        Err(error) => {
            eprintln!("skipped: no fio here: {error}");
            return None;
        }
    }
    let directory = samples::directory();
    let output = Command::new("fio")
        .current_dir(directory.path())
        .args(["--bs=4k", "--size=256k", "--name=a", "--filename=data"])
        .args(options.split_whitespace())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    Some(serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap())
}

#[track_caller]
fn compare(options: &str, plus: bool, jobs: Vec<JobReport>) {
    let form = if plus { "json+" } else { "json" };
    let Some(theirs) = fio(&format!("{options} --output-format={form}")) else { return };
    let report = samples::run(jobs);
    for ours in
        [fio_json(&report, plus), serde_json::from_str(&fio_json_text(&report, plus)).unwrap()]
    {
        let (mut our_keys, mut their_keys) = (BTreeMap::new(), BTreeMap::new());
        keys(&ours, "", &mut our_keys);
        keys(&theirs, "", &mut their_keys);
        // Without disks, fio omits this key.
        their_keys.entry("/disk_util".to_owned()).or_insert("array");
        assert!(their_keys.len() > 100, "{their_keys:#?}");
        for (key, kind) in &their_keys {
            assert_eq!(our_keys.get(key), Some(kind), "{key} of fio's {options}");
        }
        for key in our_keys.keys() {
            assert!(their_keys.contains_key(key), "{key} is not in fio's {options}");
        }
    }
}

#[test]
fn mixed_with_flushes() {
    let mut job = samples::job("a");
    job.flushes = samples::direction(50, 100_000);
    let options = "--rw=randrw --ioengine=psync --fsync=4";
    compare(options, true, vec![job.clone()]);
    compare(options, false, vec![job]);
}

#[test]
fn described_reads() {
    let mut job = samples::job("a");
    job.job.description = Some("words".into());
    job.directions[1] = DirectionReport::default();
    compare("--rw=randread --ioengine=psync --description=words", false, vec![job.clone()]);
    job.directions[0].clat = crate::Latencies::default();
    let options = "--rw=randread --ioengine=psync --description=words --disable_clat=1";
    compare(options, true, vec![job]);
}

#[test]
fn trims() {
    let mut job = samples::job("a");
    job.directions.rotate_right(2);
    job.directions[0] = DirectionReport::default();
    compare("--rw=randtrim --ioengine=null", true, vec![job]);
}

/// fio runs for two seconds, with one value per second.
#[test]
fn steady_states() {
    for limit in ["20%", "5000"] {
        let mut job = samples::job("a");
        job.directions[1] = DirectionReport::default();
        let percent = limit.ends_with('%');
        job.job.steady = Some(SteadyGoal {
            of: SteadyOf::Bandwidth,
            by: Steadiness::Deviation,
            limit: 20.0,
            percent,
            window: Duration::from_secs(2),
            ramp: Duration::ZERO,
            interval: Duration::from_secs(1),
        });
        job.steady = Some(SteadyReport {
            attained: true,
            criterion: 1.5,
            max_deviation: 1.5,
            slope: 0.0,
            ios: vec![100, 101],
            bytes: vec![409_600, 413_696],
        });
        let options = format!(
            "--rw=randread --ioengine=null --rate_iops=100 --time_based --runtime=3 \
             --steadystate=bw:{limit} --steadystate_duration=2"
        );
        compare(&options, true, vec![job]);
    }
}

#[test]
fn other_percentiles() {
    let mut job = samples::job("a");
    job.job.percentiles = vec![99.999, 50.0];
    job.directions[1] = DirectionReport::default();
    compare("--rw=randread --ioengine=psync --percentile_list=50:99.999", true, vec![job]);
}

#[test]
fn percentiles_of_all_latencies() {
    let mut job = samples::job("a");
    for option in ["lat_percentiles", "slat_percentiles"] {
        job.job.options.push((option.to_owned(), "1".to_owned()));
    }
    let options = "--rw=randrw --ioengine=libaio --lat_percentiles=1 --slat_percentiles=1";
    compare(options, true, vec![job]);
}

#[test]
fn groups() {
    let mut job = samples::job("a");
    job.job.group_reporting = true;
    compare(
        "--rw=randrw --ioengine=psync --numjobs=2 --group_reporting",
        true,
        vec![job.clone(), job],
    );
}
