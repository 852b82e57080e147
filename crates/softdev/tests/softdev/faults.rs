//! Fault plans: seeded, repeatable, and as text.

use qpair_nvme_wire::Status;
use qpair_softdev::faults::{BlockRange, Faults, Op, Outcome, Plan};

fn outcomes(plan: &Plan, op: Op, commands: u64) -> Vec<Outcome> {
    let faults = Faults::new(plan.clone());
    (0..commands).map(|block| faults.next(op, block, 1)).collect()
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let plan: Plan = "seed=7,read_error_rate=0.1,timeout_rate=0.01,drop_rate=0.01,delay_rate=0.2"
        .parse()
        .unwrap();
    let first = outcomes(&plan, Op::Read, 10_000);
    assert_eq!(first, outcomes(&plan, Op::Read, 10_000));
    assert_ne!(first, outcomes(&Plan { seed: 8, ..plan }, Op::Read, 10_000));
    let count = |outcome| first.iter().filter(|other| **other == outcome).count();
    let near = |count: usize, expected: usize| count.abs_diff(expected) < expected / 3 + 20;
    assert!(near(count(Outcome::Fail(Status::UNRECOVERED_READ_ERROR)), 980));
    assert!(near(count(Outcome::Never), 100) && near(count(Outcome::Drop), 100));
    assert!(near(count(Outcome::Delay(1_000_000)), 1760));
}

#[test]
fn faults_hit_the_commands_they_name() {
    let plan: Plan = "read_error_blocks=100-199+500,write_error_blocks=7".parse().unwrap();
    let faults = Faults::new(plan);
    let read_error = Outcome::Fail(Status::UNRECOVERED_READ_ERROR);
    for (op, first, blocks, outcome) in [
        (Op::Read, 0, 100, Outcome::Proceed),
        (Op::Read, 0, 101, read_error),
        (Op::Read, 199, 1, read_error),
        (Op::Read, 200, 300, Outcome::Proceed),
        (Op::Read, 200, 301, read_error),
        (Op::Read, u64::MAX, 2, Outcome::Proceed),
        (Op::Write, 100, 100, Outcome::Proceed),
        (Op::Write, 0, 8, Outcome::Fail(Status::WRITE_FAULT)),
        (Op::Discard, 7, 1, Outcome::Fail(Status::WRITE_FAULT)),
        (Op::Read, 7, 1, Outcome::Proceed),
        (Op::Flush, 0, 0, Outcome::Proceed),
    ] {
        assert_eq!(faults.next(op, first, blocks), outcome, "{op:?} {first}+{blocks}");
    }
    for (text, outcome) in [
        ("timeout_after=5", Outcome::Never),
        ("drop_after=5", Outcome::Drop),
        ("fatal_after=5", Outcome::Fatal),
        ("remove_after=5", Outcome::Remove),
        ("power_cut_after=5", Outcome::PowerCut),
    ] {
        for op in [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes] {
            let mut expected = vec![Outcome::Proceed; 10];
            expected[4] = outcome;
            assert_eq!(outcomes(&text.parse().unwrap(), op, 10), expected, "{text}");
        }
    }
    // No other fault hides a fault that ends the drive.
    let all = "read_error_rate=1,timeout_rate=1,remove_after=2".parse().unwrap();
    assert_eq!(outcomes(&all, Op::Read, 2), [Outcome::Never, Outcome::Remove]);
    let flushes = outcomes(&"flush_error_rate=1,read_error_rate=1".parse().unwrap(), Op::Flush, 3);
    assert_eq!(flushes, [Outcome::Fail(Status::INTERNAL_ERROR); 3]);
    let corrupt = outcomes(&"corrupt_rate=1".parse().unwrap(), Op::Read, 2);
    assert!(matches!(corrupt[..], [Outcome::Corrupt(a), Outcome::Corrupt(b)] if a != b));
}

#[test]
fn without_a_plan_nothing_happens() {
    let faults = Faults::default();
    assert_eq!(faults.next(Op::Read, 0, 1), Outcome::Proceed);
    assert!(Plan::default().is_empty() && faults.commands() == 0);
    assert!("seed=9,delay_us=5".parse::<Plan>().unwrap().is_empty());
    assert!(!"remove_after=1".parse::<Plan>().unwrap().is_empty());
}

#[test]
fn plans_read_as_written() {
    let texts = [
        "",
        "seed=7,read_error_rate=0.001,timeout_rate=0.5,remove_after=12",
        "read_error_blocks=1-1+5-9,write_error_rate=1,write_error_blocks=0-18446744073709551615",
        "flush_error_rate=0.25,drop_rate=0.125,delay_rate=0.1,delay_us=2.5,corrupt_rate=0.0625",
        "timeout_after=1,drop_after=2,fatal_after=3,power_cut_after=4",
    ];
    for text in texts {
        assert_eq!(text.parse::<Plan>().unwrap().to_string(), text);
    }
    let plan: Plan = "read_error_blocks=5".parse().unwrap();
    assert_eq!(plan.read_error_blocks, [BlockRange { first: 5, last: 5 }]);
    for wrong in [
        "read_error_rate",
        "read_error_rate=2",
        "read_error_rate=-0.1",
        "read_error_rate=NaN",
        "read_error_blocks=9-5",
        "read_error_blocks=",
        "remove_after=0",
        "remove_after=1,remove_after=2",
        "seed=x",
        "luck=0",
    ] {
        assert!(wrong.parse::<Plan>().is_err(), "{wrong}");
    }
    let mut options = vec![("size", "1GiB"), ("seed", "3"), ("drop_after", "4")];
    let plan = Plan::take(&mut options).unwrap();
    assert_eq!((plan.seed, plan.drop_after), (3, Some(4)));
    assert_eq!(options, [("size", "1GiB")]);
}
