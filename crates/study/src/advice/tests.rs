//! Tests of the advice, with made-up studies.

use super::*;
use crate::config::Config;
use crate::lab::InterfaceReport;
use crate::measure::Measure;
use crate::synthetic::{speed, study};

/// S1's figures, the same at every depth except 1.
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
    // 260 over 182, and what the drive of the made-up study drifts.
    let times: f64 = advice.reasons[0].split(' ').next().unwrap().parse().unwrap();
    assert!((1.2..1.7).contains(&times), "{:?}", advice.reasons);
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
    // A kernel thread is not advised on one core, even if it measured fastest.
    let fast = study(2, 1, &ALL, |config, round| {
        let k = config.interface == "io_uring+k";
        Some(speed(config, round, if k { 900e3 } else { 100e3 }))
    });
    let choice = advise(&fast, &question).choice.unwrap();
    assert!(!choice.interface.contains("+k"));
    // A kernel thread is not advised for two drives on two cores either.
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
    // The interfaces differ only by noise: each is ahead in half of the rounds.
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
        unavailable: Some("no poll queues".to_owned()),
        way_out: Some("nvme.poll_queues=2".to_owned()),
        ..InterfaceReport::default()
    });
    let changes = advise(&study, &Question::default()).changes;
    assert!(changes.iter().any(|text| text.contains("no poll queues; nvme.poll_queues=2")));
}

#[test]
fn another_mix_is_another_question() {
    let mix = Mix { read_percent: 30, block_bytes: 16384 };
    let question = Question { mix, ..Question::default() };
    // The study has reads, for which the answer is io_uring+k, but no requests of the other mix.
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

#[test]
fn the_answer_is_a_sentence_with_its_reasons() {
    let said = answer(&study(2, 1, &ALL, s1)).sentences;
    assert!(said[0].starts_with("Use io_uring+k with "), "{said:?}");
    let because = " requests in flight for each drive on this machine, because it has 1.";
    assert!(said[0].contains(because) && said[0].contains(" times the IOPS of io_uring and 1."));
    assert!(said[0].ends_with(" times those of libaio."), "{said:?}");
    assert!(said[1].starts_with("io_uring+k had 3") && said[1].contains("two cores, at a median"));
    assert!(said[2].starts_with("With one core for each drive use io_uring with "), "{said:?}");
    // On one core the kernel thread cannot be chosen, and the answer says so.
    let said = answer(&study(1, 1, &ALL, s1)).sentences;
    assert!(said[0].starts_with("Use io_uring with "), "{said:?}");
    assert!(said.iter().any(|text| text.starts_with("io_uring+k is left out")), "{said:?}");
}

#[test]
fn the_answer_claims_no_more_than_was_measured() {
    let cheap = study(2, 1, &["libaio", "io_uring"], |config, round| {
        let measure = speed(config, round, 100e3);
        let uring = config.interface == "io_uring";
        Some(Measure { cpu_us_per_io: if uring { 4.0 } else { 9.0 }, ..measure })
    });
    let said = answer(&cheap).sentences;
    let because = "because it takes 4.0 us of processor time for an I/O, less than libaio (9.0), which is not surely faster.";
    assert!(said[0].starts_with("Use io_uring ") && said[0].ends_with(because), "{said:?}");

    let mut alike =
        study(2, 1, &["libaio", "io_uring"], |config, round| Some(speed(config, round, 100e3)));
    let first = answer(&alike);
    assert!(first.sentences[0].ends_with("because no other is faster or cheaper beyond chance."));
    assert!(first.sentences[1].starts_with("No difference from "), "{first:?}");
    assert!(first.doubts.is_empty(), "{first:?}");
    // Runs that are minutes apart show neither a difference nor the absence of one.
    let mut apart = alike.clone();
    for point in apart.points.iter_mut().filter(|point| point.config.interface == "libaio") {
        point.runs.iter_mut().for_each(|run| run.at_s += 60.0);
    }
    let said = answer(&apart).sentences;
    assert!(said[0].ends_with("it had the most IOPS, in runs that allow no comparison."));
    assert!(said[1].starts_with("Not measured close enough in time to compare: "), "{said:?}");
    // Single runs, other programs and missing interfaces are doubts.
    alike.points.iter_mut().for_each(|point| point.runs.truncate(1));
    alike.notes.push("The machine was busy.".to_owned());
    alike.interfaces.push(InterfaceReport {
        name: "io_uring+p".to_owned(),
        unavailable: Some("no poll queues".to_owned()),
        ..InterfaceReport::default()
    });
    let doubts = answer(&alike).doubts.join(" ");
    for part in ["busy", "run once", "not ruled out: io_uring+p (qpair"] {
        assert!(doubts.contains(part), "{doubts}");
    }
}

#[test]
fn without_data_the_answer_says_what_is_missing() {
    let nothing = |study| {
        let answer = answer(&study);
        assert!(answer.choice.is_none() && answer.sentences.len() == 1, "{answer:?}");
        let what = "This study does not say which interface to use on this machine: ";
        answer.sentences[0].strip_prefix(what).unwrap().to_owned()
    };
    let failed = nothing(study(2, 1, &ALL, |_, _| None));
    assert!(failed.starts_with("the runs of experiment s1-fig2 failed, such as libaio: 1 thread"));
    assert!(failed.ends_with("reads of 4KiB: failed."), "{failed}");
    let other = crate::synthetic::study_of(
        vec![crate::find("s3-fig3").unwrap()],
        2,
        1,
        &ALL,
        |config, round| Some(speed(config, round, 100e3)),
    );
    assert!(nothing(other).starts_with("experiment s1-fig2, which compares the interfaces"));
    let mut none = study(2, 1, &ALL, |_, _| None);
    none.interfaces.iter_mut().for_each(|one| one.unavailable = Some("forbidden".to_owned()));
    assert_eq!(nothing(none), "no interface can be used on its devices.");
}
