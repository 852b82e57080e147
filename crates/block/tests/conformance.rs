//! Every device of this crate passes the one suite.

use std::sync::Arc;

use qpair_block::{BlockDevice, NullDevice, NullOptions, RamDevice, RamOptions};
use qpair_conformance::{Options, Report, run};

fn ram(options: RamOptions) -> Arc<dyn BlockDevice> {
    Arc::new(RamDevice::new(options).unwrap())
}

fn pass(make: impl Fn() -> Arc<dyn BlockDevice>, options: Options, skips: &[&str]) {
    let report = run(make, options);
    println!("{report}");
    report.assert_passed();
    assert_eq!(skipped(&report), skips, "{report}");
}

fn skipped(report: &Report) -> Vec<&str> {
    report.skipped().map(|(name, _)| name).collect()
}

#[test]
fn ram_device() {
    let make = || ram(RamOptions::default());
    pass(make, Options::default(), &["read_only_refuses_writes", "completion_fd"]);
}

#[test]
fn ram_device_of_large_blocks() {
    let options =
        RamOptions { logical_block_bytes: 4096, size_bytes: 300 << 10, ..RamOptions::default() };
    pass(|| ram(options), Options::default(), &["read_only_refuses_writes", "completion_fd"]);
}

#[test]
fn ram_device_of_fixed_size() {
    let options = RamOptions { growable: false, ..RamOptions::default() };
    pass(
        || ram(options),
        Options::default(),
        &["grow", "read_only_refuses_writes", "completion_fd"],
    );
}

#[test]
fn ram_device_read_only() {
    let report =
        run(|| ram(RamOptions { read_only: true, ..RamOptions::default() }), Options::default());
    println!("{report}");
    report.assert_passed();
    assert!(report.passed().any(|name| name == "read_only_refuses_writes"));
    assert!(skipped(&report).contains(&"read_back_random"));
}

#[test]
fn null_device() {
    let report = run(
        || Arc::new(NullDevice::new(NullOptions::default()).unwrap()),
        Options { keeps_content: false, ..Options::default() },
    );
    println!("{report}");
    report.assert_passed();
    assert!(report.passed().any(|name| name == "every_tag_once"));
}
