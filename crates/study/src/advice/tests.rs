//! Tests of the advice, with made-up studies.

use super::*;
use crate::config::Config;
use crate::lab::InterfaceReport;
use crate::measure::Measure;
use crate::synthetic::{speed, study};

/// S1's figures, at every depth alike but for 1.
fn s1(config: &Config, round: u32) -> Option<Measure> {
    let at_load = match (config.interface.as_str(), config.cores) {
        ("io_uring+k", 1) => 13e3,
        ("io_uring+k", _) => 260e3,
        ("io_uring", 1) => 171e3,
        ("io_uring", _) => 182e3,
        ("libaio", 1) => 145e3,
        ("libaio", _) => 150e3,
        ("io_uring_cmd", _) => 300e3,
        _ => 100e3,
    };
    let share = f64::from(config.depth.min(64)) / 64.0;
    Some(speed(config, round, at_load * share))
}

const ALL: [&str; 3] = ["libaio", "io_uring", "io_uring+k"];

#[test]
fn two_cores_take_the_kernel_thread_and_are_warned() {
    let study = study(2, 1, &ALL, s1);
    let advice = advise(&study, &Question::default());
    let choice = advice.choice.unwrap();
    assert_eq!((choice.interface.as_str(), choice.cores), ("io_uring+k", 2));
    assert!(advice.warnings[0].contains("collapses"), "{:?}", advice.warnings);
    assert!(
        advice.changes.iter().any(|text| text.contains("one core") && text.contains("io_uring,")),
        "{:?}",
        advice.changes
    );
    assert!(advice.reasons[0].contains("1.4"), "{:?}", advice.reasons);
}

#[test]
fn one_core_never_takes_the_kernel_thread() {
    let question = Question { cores: Some(1), ..Question::default() };
    let advice = advise(&study(2, 1, &ALL, s1), &question);
    assert_eq!(advice.choice.unwrap().interface, "io_uring");
    assert!(advice.warnings[0].contains("io_uring+k collapses"), "{:?}", advice.warnings);
    assert!(
        advice.changes[0].contains("two cores") && advice.changes[0].contains("io_uring+k"),
        "{:?}",
        advice.changes
    );
    // Not even where it measured fastest.
    let fast = study(2, 1, &ALL, |config, round| {
        let k = config.interface == "io_uring+k";
        Some(speed(config, round, if k { 900e3 } else { 100e3 }))
    });
    let choice = advise(&fast, &question).choice.unwrap();
    assert!(!choice.interface.contains("+k"));
    // Nor with two drives on two cores.
    let two = study(2, 2, &ALL, s1);
    assert_eq!(advise(&two, &Question::default()).choice.unwrap().interface, "io_uring");
}

#[test]
fn a_lead_that_is_none_goes_to_the_cheaper() {
    let alike = study(2, 1, &["libaio", "io_uring"], |config, round| {
        let uring = config.interface == "io_uring";
        let measure = speed(config, round, if uring { 100e3 } else { 102e3 });
        Some(Measure { cpu_us_per_io: if uring { 4.0 } else { 9.0 }, ..measure })
    });
    let advice = advise(&alike, &Question::default());
    assert_eq!(advice.choice.unwrap().interface, "io_uring");
    assert!(advice.reasons[0].contains("4.0 us of processor time"), "{:?}", advice.reasons);
}

#[test]
fn chance_is_no_reason() {
    // Alike in everything but noise: in half of the rounds one is ahead, in half the other.
    let alike = study(2, 1, &["libaio", "io_uring"], |config, round| {
        let uring = config.interface == "io_uring";
        let ahead = (round % 2 == 0) == uring;
        let measure = speed(config, round, if ahead { 104e3 } else { 100e3 });
        Some(Measure { cpu_us_per_io: if ahead { 4.8 } else { 5.1 }, ..measure })
    });
    let reasons = advise(&alike, &Question::default()).reasons;
    assert!(reasons[0].contains("no difference that could be measured"), "{reasons:?}");
}

#[test]
fn depth_and_latency_bound_the_answer() {
    let study = study(2, 1, &ALL, s1);
    let question = Question { depth: Some(5), ..Question::default() };
    let advice = advise(&study, &question);
    assert_eq!(advice.choice.unwrap().depth, 4);
    assert!(advice.reasons.iter().any(|text| text.contains("nearest to 5")));
    assert!(advice.changes.iter().any(|text| text.contains("deeper queue")));
    // Latency is depth over speed: of io_uring+k, 3 * 64 / 260e3 s at depth 64 and half of the
    // rate at 128.
    let question = Question { latency_us_max: Some(1000.0), ..Question::default() };
    let choice = advise(&study, &question).choice.unwrap();
    assert!(choice.p99_us <= 1000.0 && choice.interface == "io_uring+k", "{choice:?}");
    let question = Question { latency_us_max: Some(1.0), ..Question::default() };
    let advice = advise(&study, &question);
    assert!(advice.choice.is_none() && advice.reasons[0].contains("the least is"));
}

#[test]
fn depths_of_one_alone_do_not_count() {
    // Deep queues are measured with one interface only, and are fastest.
    let study = study(2, 1, &ALL, |config, round| {
        Some(speed(config, round, 1e3 * f64::from(config.depth)))
    });
    assert!(study.point(&Config::new("io_uring", 2).depth(512)).is_some());
    assert_eq!(advise(&study, &Question::default()).choice.unwrap().depth, 128);
}

#[test]
fn a_file_system_rules_out_passthrough() {
    let study = study(2, 1, &["libaio", "io_uring", "io_uring_cmd"], s1);
    let free = advise(&study, &Question::default());
    assert_eq!(free.choice.unwrap().interface, "io_uring_cmd");
    let bound = advise(&study, &Question { filesystem: true, ..Question::default() });
    assert_eq!(bound.choice.unwrap().interface, "io_uring");
    assert!(bound.changes.iter().any(|text| text.contains("without a file system")));
}

#[test]
fn what_is_missing_would_change_the_answer() {
    let mut study = study(2, 1, &ALL, s1);
    study.interfaces.push(InterfaceReport {
        name: "io_uring+p".to_owned(),
        about: String::new(),
        ran_as: None,
        unavailable: Some("no poll queues".to_owned()),
        way_out: Some("nvme.poll_queues=2".to_owned()),
    });
    let changes = advise(&study, &Question::default()).changes;
    assert!(changes.iter().any(|text| text.contains("no poll queues; nvme.poll_queues=2")));
}

#[test]
fn another_mix_is_another_question() {
    let mix = Mix { read_percent: 30, block_bytes: 16384 };
    let question = Question { mix, ..Question::default() };
    // Reads say io_uring+k; of such requests the study knows nothing.
    let reads = study(2, 1, &ALL, s1);
    let advice = advise(&reads, &question);
    assert!(advice.choice.is_none() && advice.reasons[0].contains("such requests"));
    let of_mix = crate::synthetic::study_of_mix(mix, &ALL, |config, round| {
        assert_eq!((config.read_percent, config.block_bytes), (30, 16384));
        let fast = config.interface == "libaio";
        Some(speed(config, round, if fast { 200e3 } else { 100e3 }))
    });
    assert_eq!(advise(&of_mix, &question).choice.unwrap().interface, "libaio");
}

#[test]
fn without_measurements_nothing_is_advised() {
    let advice = advise(&study(2, 1, &ALL, |_, _| None), &Question::default());
    assert!(advice.choice.is_none() && advice.reasons[0].contains("s1-fig2"));
}
