//! Prints the shapes of the profiles, in virtual time:
//! `cargo run --release -p qpair-softdev --example profiles [PROFILE...]`.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example prints, and panics where it is misused"
)]

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../tests/softdev/shapes/mod.rs"]
mod shapes;

use std::time::Instant;

use qpair_softdev::flash::Op;
use shapes::{Load, Rig, percentile_us};

const GIB: u64 = 1 << 30;

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let given =
        if given.is_empty() { ["tlc", "qlc", "optane"].map(String::from).to_vec() } else { given };
    for profile in &given {
        depths(profile);
        mixes(profile);
        ages(profile);
        flushes(profile);
    }
}

fn depths(profile: &str) {
    println!("\n{profile}: 4 KiB random reads of a full drive by queue depth\n");
    println!("| depth | IOPS | median us | p99 us |\n|---|---|---|---|");
    for depth in [1, 4, 16, 64, 128, 256, 1024] {
        let mut rig = Rig::new(profile, GIB);
        rig.fill();
        rig.rest_ms(1000);
        let run = rig.run(Load { depth, ..Load::default() }, 100_000);
        let (median, tail) = (percentile_us(&run.read_ns, 0.5), percentile_us(&run.read_ns, 0.99));
        println!("| {depth} | {:.0} | {median:.1} | {tail:.1} |", run.iops());
    }
}

fn mixes(profile: &str) {
    println!(
        "\n{profile}: 4 KiB random at depth 256 on a drive in steady state, by share of writes\n"
    );
    println!(
        "| writes | IOPS | read median us | read p99 us | write median us |\n|---|---|---|---|---|"
    );
    for writes in [0, 5, 10, 25, 50, 75, 100] {
        let mut rig = Rig::new(profile, GIB);
        rig.fill();
        rig.run(Load { depth: 32, reads: 0.0, ..Load::default() }, 3 * GIB / 4096);
        rig.rest_ms(1000);
        let load = Load { depth: 256, reads: 1.0 - f64::from(writes) / 100.0, ..Load::default() };
        rig.run(load, 200_000);
        let run = rig.run(load, 200_000);
        println!(
            "| {writes} % | {:.0} | {:.0} | {:.0} | {:.0} |",
            run.iops(),
            percentile_us(&run.read_ns, 0.5),
            percentile_us(&run.read_ns, 0.99),
            percentile_us(&run.write_ns, 0.5),
        );
    }
}

fn ages(profile: &str) {
    println!("\n{profile}: writes over the life of a drive of 4 GiB\n");
    println!("| phase | MB/s | write amplification |\n|---|---|---|");
    let mut rig = Rig::new(profile, 4 * GIB);
    let started = Instant::now();
    let mut calls = 0;
    let mut phase = |rig: &mut Rig, name: &str, load: Load, bytes: u64| {
        let before = rig.flash.counts();
        let run = rig.run(load, bytes / load.bytes);
        calls += run.commands;
        let amplification = rig.flash.counts().write_amplification(&before);
        println!("| {name} | {:.0} | {amplification:.2} |", run.mb_per_s());
    };
    let sequential =
        Load { depth: 32, bytes: 128 << 10, reads: 0.0, sequential: true, ..Load::default() };
    let random = Load { depth: 64, reads: 0.0, ..Load::default() };
    for quarter in 1..=8 {
        phase(&mut rig, &format!("in order, {} MiB", quarter * 512), sequential, GIB / 2);
    }
    rig.rest_ms(60_000);
    phase(&mut rig, "in order, after a minute's rest", sequential, GIB / 2);
    for round in 1..=4 {
        phase(&mut rig, &format!("random, {round}. time over"), random, 4 * GIB);
    }
    let now = rig.now_ns;
    rig.now_ns = rig.flash.schedule(now, Op::Discard, 0, 2 * GIB, false);
    phase(&mut rig, "random, half was deallocated", random, GIB / 2);
    rig.now_ns = rig.flash.schedule(rig.now_ns, Op::Discard, 0, 4 * GIB, false);
    phase(&mut rig, "random, all was deallocated", random, GIB);
    println!("\n(the model took {} ns a command)", started.elapsed().as_nanos() as u64 / calls);
}

fn flushes(profile: &str) {
    println!("\n{profile}: 4 KiB writes, one after the other\n");
    println!("| | median us | p99 us |\n|---|---|---|");
    for (name, fua, flush_every) in
        [("write", false, 0), ("with FUA", true, 0), ("a flush after each", false, 1)]
    {
        let mut rig = Rig::new(profile, GIB);
        rig.fill();
        rig.rest_ms(1000);
        let run = rig.run(Load { reads: 0.0, fua, flush_every, ..Load::default() }, 5000);
        let (median, tail) =
            (percentile_us(&run.write_ns, 0.5), percentile_us(&run.write_ns, 0.99));
        println!("| {name} | {median:.0} | {tail:.0} |");
    }
}
