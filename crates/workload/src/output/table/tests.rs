use super::super::samples;
use super::*;
use crate::{JobError, VerifyError, VerifyReport};

const PLAIN: Style = Style { colour: false, width: 100 };

#[test]
fn everything_found_is_there() {
    let mut job = samples::job("mixed");
    job.flushes = samples::direction(100, 800_000);
    job.cpu.helpers_system = Duration::from_millis(20);
    job.verify = VerifyReport {
        blocks: 1000,
        wrong: 1,
        errors: vec![VerifyError {
            device: "data.bin".into(),
            offset_bytes: 8192,
            len_bytes: 4096,
            what: "checksum 1 where 2 was written".into(),
        }],
    };
    job.error = Some(JobError { errno: 5, what: "reading data.bin: it failed".into() });
    let mut report = samples::run(vec![job]);
    report.interrupted = true;
    let text = table(&report, PLAIN);
    for word in [
        "mixed: 10 s",
        "random reads (70 %) and writes (30 %) of 4 KiB, 32 in flight, direct",
        "io_uring (SINGLE_ISSUER|DEFER_TASKRUN",
        "data.bin",
        "7,005",
        "27.4 MiB/s",
        "70,045",
        "read slat",
        "write clat",
        "flush",
        "4.23 us CPU: 0.91 user, 3.32 system; of it 0.20 by helper threads",
        "0.531 system calls, 0.482 context switches",
        "instructions 12,340, cycles 9,872; 3.01 instructions a byte",
        "over time",
        "1 of 1,000 blocks hold something else",
        "data.bin at byte 8192, 4096 long: checksum 1 where 2 was written",
        "reading data.bin: it failed",
        "auto chose io_uring",
        "interrupted",
        "0123456789abcdef",
    ] {
        assert!(text.contains(word), "no \"{word}\" in:\n{text}");
    }
    assert!(!text.contains("trim") && !text.contains('\x1b'), "{text}");
}

#[test]
fn lines_keep_to_the_width() {
    let mut stress = samples::job("stress");
    stress.job.form = Form::Stress;
    let report = samples::run(vec![samples::job("a"), stress]);
    for width in [60, 80, 120] {
        let text = table(&report, Style { colour: false, width });
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn what_is_missing_is_said() {
    let mut job = samples::job("a");
    (job.cpu.instructions, job.cpu.cycles) = (None, None);
    let text = table(&samples::run(vec![job]), PLAIN);
    assert!(text.contains("instructions and cycles: not available"), "{text}");
    let mut nothing = samples::job("a");
    nothing.directions = Default::default();
    nothing.series.clear();
    nothing.devices.clear();
    let text = table(&samples::run(vec![nothing]), PLAIN);
    assert!(text.contains("no request was completed") && text.contains("no device"), "{text}");
}

#[test]
fn stress_shows_samples_and_the_cliff() {
    let mut job = samples::job("fill");
    job.job.form = Form::Stress;
    for sample in &mut job.series[6..] {
        sample.bytes = [0, 1 << 20, 0];
    }
    let text = table(&samples::run(vec![job]), PLAIN);
    assert!(text.contains("falls at 6 s from 39.1 MiB/s to 1.00 MiB/s"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("10,00")).count(), 10, "{text}");
    assert!(text.contains('█'), "{text}");
}

#[test]
fn a_state_says_that_the_run_goes_on() {
    let mut ramping = samples::job("ramping");
    (ramping.in_ramp, ramping.job.ramp) = (true, Duration::from_secs(7));
    let mut report = samples::run(vec![samples::job("a"), ramping]);
    assert!(table(&report, PLAIN).contains("ended within its ramp of 7 s"));
    report.so_far = Some(Duration::from_millis(2500));
    let text = table(&report, PLAIN);
    assert!(text.starts_with("state after 2.5 s: the run goes on\n\na: 10 s"), "{text}");
    assert!(text.contains("within its ramp of 7 s: nothing is measured yet"), "{text}");
    assert!(text.ends_with("0123456789abcdef\n\n"), "{text}");
}

#[test]
fn an_open_loop_says_how_late_it_was() {
    let mut job = samples::job("rate");
    job.job.rate[0].ios_per_s = 7000;
    job.late_max = Duration::from_millis(12);
    let text = table(&samples::run(vec![job]), PLAIN);
    assert!(text.contains("at 7,000/s reads"), "{text}");
    assert!(text.contains("the latest was sent 12.0 ms late"), "{text}");
}

#[test]
fn colours_only_where_they_are_seen() {
    let report = samples::run(vec![samples::job("a"), samples::job("b")]);
    let coloured = table(&report, Style { colour: true, width: 100 });
    let mut plain = String::new();
    for (at, part) in coloured.split('\x1b').enumerate() {
        plain.push_str(if at == 0 { part } else { part.split_once('m').unwrap().1 });
    }
    assert_eq!(plain, table(&report, PLAIN));
    assert!(plain.contains("all together: 2 jobs"), "{plain}");
}
