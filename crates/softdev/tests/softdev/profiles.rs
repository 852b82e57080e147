//! The typical timing of real drives, checked on the profiles. All times are virtual, so no test
//! depends on the speed of the machine.

use crate::shapes::{Load, Rig, percentile_us};
use qpair_softdev::flash::{Flash, Op, Profile};

const GIB: u64 = 1 << 30;

const READS: Load =
    Load { depth: 1, bytes: 4096, reads: 1.0, sequential: false, fua: false, flush_every: 0 };
const IN_ORDER: Load = Load { depth: 32, bytes: 128 << 10, reads: 0.0, sequential: true, ..READS };
const WRITES: Load = Load { depth: 64, reads: 0.0, ..READS };

/// Creates a drive that was written in order, and had time to finish all programs.
fn full(profile: &str) -> Rig {
    let mut rig = Rig::new(profile, GIB);
    rig.fill();
    rig.rest_ms(10_000);
    rig
}

/// Creates a full drive that was then written at random, three times its capacity.
fn steady(profile: &str) -> Rig {
    let mut rig = full(profile);
    rig.run(WRITES, 3 * GIB / 4096);
    rig.rest_ms(10_000);
    rig
}

#[test]
fn reads_gain_by_depth_until_the_dies_are_busy() {
    for (name, by_dies) in [("tlc", true), ("qlc", true), ("optane", false)] {
        let profile = Profile::named(name).unwrap();
        let dies = f64::from(profile.channels * profile.dies);
        let bound = if by_dies {
            dies * 1e9 / profile.read_ns as f64
        } else {
            1e9 / profile.command_ns as f64
        };
        let mut last = 0.0;
        for depth in [1, 2, 4, 8, 16, 64, 256, 1024] {
            let run = full(name).run(Load { depth, ..READS }, 50_000);
            assert!(run.iops() > last * 0.99, "{name} at depth {depth}: {} IOPS", run.iops());
            last = run.iops();
            assert!(last < bound * 1.01, "{name} at depth {depth}: {last} IOPS of {bound}");
            if depth == 1 {
                let alone_us = (profile.controller_ns + profile.read_ns) as f64 / 1e3;
                let median_us = percentile_us(&run.read_ns, 0.5);
                assert!((alone_us..alone_us + 10.0).contains(&median_us), "{name}: {median_us}");
            }
        }
        assert!(last > bound * 0.85, "{name}: {last} IOPS of {bound}");
    }
}

/// S3, Fig. 2b: with a tenth of writes, flash loses about a third of its IOPS; with a quarter,
/// about half.
#[test]
fn a_mix_is_slower_than_its_parts() {
    for name in ["tlc", "qlc"] {
        let run = |writes: f64| {
            let load = Load { depth: 256, reads: 1.0 - writes, ..READS };
            let mut rig = steady(name);
            rig.run(load, 100_000);
            rig.run(load, 100_000)
        };
        let (reads, tenth, quarter, writes) = (run(0.0), run(0.1), run(0.25), run(1.0));
        let between = |share: f64| reads.iops() * (1.0 - share) + writes.iops() * share;
        assert!(tenth.iops() < 0.8 * between(0.1), "{name}: {} IOPS", tenth.iops());
        assert!(quarter.iops() < 0.8 * between(0.25), "{name}: {} IOPS", quarter.iops());
        assert!(quarter.iops() < 0.9 * tenth.iops());
        // A read that meets a program or an erase waits for it.
        let program_us = Profile::named(name).unwrap().program_ns as f64 / 1e3;
        assert!(percentile_us(&tenth.read_ns, 0.99) > program_us);
    }
    let optane = |reads| full("optane").run(Load { depth: 64, reads, ..READS }, 50_000).iops();
    let (reads, mix, writes) = (optane(1.0), optane(0.75), optane(0.0));
    assert!(mix > 0.95 * reads && writes > 0.9 * reads, "{reads} {mix} {writes}");
}

#[test]
fn reads_that_can_suspend_programs_wait_less() {
    let tail_us = |profile: &str| {
        let mut rig = steady(profile);
        let run = rig.run(Load { depth: 16, reads: 0.9, ..READS }, 50_000);
        percentile_us(&run.read_ns, 0.99)
    };
    let (waiting, suspending) = (tail_us("tlc"), tail_us("tlc,suspend_us=20"));
    assert!(suspending < waiting / 2.0, "p99 {suspending} us, without {waiting} us");
}

/// S4: prolonged writes slow down when the SLC cache is full, and recover after the drive was idle.
#[test]
fn the_slc_cache_runs_out_and_is_refilled_by_rest() {
    let mut rig = Rig::new("qlc,slc_cache=128MiB,dram_cache=1MiB", GIB);
    let parts: Vec<f64> =
        (0..8).map(|_| rig.run(IN_ORDER, (64 << 20) / IN_ORDER.bytes).mb_per_s()).collect();
    let profile = *rig.flash.profile();
    let cells = f64::from(profile.channels * profile.dies) * f64::from(profile.page_bytes) * 1e3
        / profile.program_ns as f64;
    assert!(parts[0] > 3000.0 && parts[1] > 2500.0, "{parts:?}");
    for part in &parts[2..] {
        assert!((cells * 0.9..cells * 1.2).contains(part), "{parts:?} MB/s, cells {cells} MB/s");
    }
    assert_eq!(rig.flash.counts().slc_bytes, 128 << 20);
    rig.rest_ms(60_000);
    assert!(rig.run(IN_ORDER, (64 << 20) / IN_ORDER.bytes).mb_per_s() > 3000.0);
    // Half a second is enough to fold only a part of the cache.
    rig.run(IN_ORDER, (128 << 20) / IN_ORDER.bytes);
    rig.rest_ms(60);
    rig.run(IN_ORDER, 16);
    let left = rig.flash.counts().slc_bytes;
    assert!(left > 64 << 20, "{left}");
}

#[test]
fn collection_slows_sustained_random_writes_and_deallocation_restores_them() {
    for name in ["tlc", "qlc,slc_cache=0"] {
        let mut rig = Rig::new(name, GIB);
        let fresh = rig.run(IN_ORDER, GIB / IN_ORDER.bytes);
        assert_eq!(rig.flash.counts().write_amplification(&Default::default()), 1.0);
        // Another write in order turns whole blocks into garbage.
        let before = rig.flash.counts();
        let again = rig.run(IN_ORDER, GIB / IN_ORDER.bytes);
        assert!(again.mb_per_s() > 0.9 * fresh.mb_per_s(), "{name}: {}", again.mb_per_s());
        assert!(rig.flash.counts().write_amplification(&before) < 1.1, "{name}");
        rig.run(WRITES, 2 * GIB / 4096);
        let before = rig.flash.counts();
        let steady = rig.run(WRITES, GIB / 4096);
        let amplification = rig.flash.counts().write_amplification(&before);
        assert!(amplification > 2.0, "{name}: {amplification}");
        assert!(steady.mb_per_s() < fresh.mb_per_s() / 2.0, "{name}: {}", steady.mb_per_s());
        rig.now_ns = rig.flash.schedule(rig.now_ns, Op::Discard, 0, GIB, false);
        let restored = rig.run(WRITES, GIB / 2 / 4096);
        assert!(restored.mb_per_s() > 0.85 * fresh.mb_per_s(), "{name}: {}", restored.mb_per_s());
    }
}

#[test]
fn amplification_grows_as_the_drive_fills_and_falls_with_spare_flash() {
    let amplification = |profile: &str, share: f64| {
        let mut rig = Rig::new(profile, GIB);
        rig.fill();
        let kept = (GIB as f64 * share) as u64 & !4095;
        rig.now_ns = rig.flash.schedule(rig.now_ns, Op::Discard, kept, GIB - kept, false);
        rig.limit(kept);
        rig.run(WRITES, 2 * GIB / 4096);
        let before = rig.flash.counts();
        rig.run(WRITES, GIB / 4096);
        rig.flash.counts().write_amplification(&before)
    };
    let (half, most, all) =
        (amplification("tlc", 0.5), amplification("tlc", 0.8), amplification("tlc", 1.0));
    assert!(half < most && most < all, "{half} {most} {all}");
    assert!(half < 1.5, "{half}");
    let (less, more) = (
        amplification("tlc,over_provisioning=0.07", 1.0),
        amplification("tlc,over_provisioning=0.5", 1.0),
    );
    assert!(more < all && all < less, "{more} {all} {less}");
}

#[test]
fn a_flush_costs_where_the_cache_is_not_protected() {
    let median_us = |profile: &str, fua, flush_every| {
        let run = full(profile).run(Load { reads: 0.0, fua, flush_every, ..READS }, 4000);
        percentile_us(&run.write_ns, 0.75)
    };
    for name in ["tlc", "optane"] {
        let plain = median_us(name, false, 0);
        assert!(median_us(name, true, 0) < plain * 1.1, "{name}");
        assert!(median_us(name, false, 1) < plain * 1.1, "{name}");
    }
    let plain = median_us("qlc", false, 0);
    assert!(plain < 20.0, "{plain}");
    assert!(median_us("qlc", true, 0) > 200.0);
    assert!(median_us("qlc", false, 1) > 200.0);
    // A flush after many writes adds little to the cost of each.
    let run = full("qlc").run(Load { reads: 0.0, flush_every: 63, ..READS }, 6400);
    assert!(run.iops() > 10.0 * 1e6 / median_us("qlc", false, 1), "{}", run.iops());
}

#[test]
fn a_cache_takes_bursts_and_no_cache_takes_none() {
    let burst = Load { depth: 1, reads: 0.0, ..READS };
    let cached = full("tlc").run(burst, 1000);
    assert!(percentile_us(&cached.write_ns, 0.99) < 20.0);
    let through = full("tlc,dram_cache=0").run(burst, 1000);
    assert!(percentile_us(&through.write_ns, 0.5) > 900.0);
    // Data in the cache is read from the cache.
    let rig = full("tlc");
    let written_ns = rig.flash.schedule(rig.now_ns, Op::Write, 8192, 4096, false);
    let read_ns = rig.flash.schedule(written_ns, Op::Read, 8192, 4096, false) - written_ns;
    assert!(read_ns < 20_000, "{read_ns}");
}

#[test]
fn reads_in_order_are_faster_than_at_random_one_by_one() {
    for name in ["tlc", "qlc"] {
        let random = full(name).run(READS, 20_000);
        let in_order = full(name).run(Load { sequential: true, ..READS }, 20_000);
        assert!(in_order.iops() > 3.0 * random.iops(), "{name}");
        let large = full(name).run(Load { reads: 1.0, ..IN_ORDER }, 8192).mb_per_s();
        let profile = Profile::named(name).unwrap();
        let bus = f64::from(profile.link_mb_per_s.min(profile.channel_mb_per_s * profile.channels));
        assert!((0.8 * bus..=1.01 * bus).contains(&large), "{name}: {large} of {bus} MB/s");
    }
}

#[test]
fn the_same_calls_give_the_same_answers() {
    let trace = |seed: u64| {
        let profile = Profile::QLC;
        let flash = Flash::new(profile, 64 << 20, seed).unwrap();
        let mut rng = fastrand::Rng::with_seed(9);
        let mut now_ns = 0;
        let mut trace = Vec::new();
        for _ in 0..50_000 {
            now_ns += rng.u64(0..20_000);
            let op = [Op::Read, Op::Write, Op::Write, Op::Write, Op::Flush, Op::Discard];
            let op = op[rng.usize(0..op.len())];
            let first_byte = rng.u64(0..128 << 10) * 512;
            let len_bytes = rng.u64(1..=256) * 512;
            let done_ns = flash.schedule(now_ns, op, first_byte, len_bytes, rng.bool());
            assert!(done_ns >= now_ns);
            trace.push(done_ns);
        }
        trace
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn without_a_profile_nothing_takes_time() {
    let flash = Flash::new(Profile::NONE, u64::MAX, 0).unwrap();
    assert!(flash.is_instant());
    assert_eq!(flash.schedule(17, Op::Write, 0, 4096, true), 17);
    assert_eq!(flash.flush(18), 18);
}

#[test]
fn nonsense_from_outside_does_no_harm() {
    for profile in Profile::NAMED {
        for capacity_bytes in [4096, 1 << 20, (1 << 30) + 512, 1 << 40] {
            let flash = Flash::new(profile, capacity_bytes, 0).unwrap();
            for op in [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes] {
                for first_byte in [0, 511, capacity_bytes - 1, capacity_bytes, u64::MAX] {
                    for len_bytes in [0, 1, 4095, 65536] {
                        let now_ns = 1_000_000;
                        assert!(flash.schedule(now_ns, op, first_byte, len_bytes, true) >= now_ns);
                    }
                }
            }
            // The caller's time may go back a little.
            assert!(flash.schedule(0, Op::Read, 0, 4096, false) > 0 || flash.is_instant());
        }
    }
}

#[test]
fn profiles_read_as_written() {
    for profile in Profile::NAMED {
        assert_eq!(profile.to_string().parse::<Profile>().unwrap(), profile);
    }
    let changed: Profile = "tlc,read_us=12.345,slc_idle_ms=0.5,dram_cache=1MiB".parse().unwrap();
    assert_eq!(
        (changed.read_ns, changed.slc_idle_ns, changed.cache_bytes),
        (12_345, 500_000, 1 << 20)
    );
    let text = "profile=tlc,read_us=12.345,dram_cache=1MiB,slc_idle_ms=0.5";
    assert_eq!(changed.to_string(), text);
    assert_eq!(text.parse::<Profile>().unwrap(), changed);
    assert_eq!("read_us=12.345,profile=tlc".parse::<Profile>().unwrap().read_ns, 12_345);
    assert_eq!("".parse::<Profile>().unwrap(), Profile::NONE);
    for wrong in [
        "sata",
        "profile=sata",
        "tlc,",
        "tlc,read_us",
        "tlc,read_us=-1",
        "tlc,read_us=NaN",
        "tlc,read_us=1e30",
        "tlc,dies=0",
        "tlc,dies=65",
        "tlc,page=4097",
        "tlc,page=8GiB",
        "tlc,jitter=2",
        "tlc,colour=red",
        "none,read_us=5",
        "read_us=5",
    ] {
        assert!(wrong.parse::<Profile>().is_err(), "{wrong}");
    }
    let mut options = vec![("size", "1GiB"), ("read_us", "9"), ("profile", "qlc")];
    let profile = Profile::take(&mut options).unwrap();
    assert_eq!((profile.name, profile.read_ns), ("qlc", 9000));
    assert_eq!(options, [("size", "1GiB")]);
}

#[test]
fn a_drive_may_start_full() {
    let mut filled = Rig::new("tlc,filled=1", GIB);
    let amplification = |rig: &mut Rig| {
        rig.run(WRITES, GIB / 4096);
        rig.flash.counts().write_amplification(&Default::default())
    };
    assert!(amplification(&mut filled) > 2.0);
    assert!(amplification(&mut Rig::new("tlc", GIB)) < 1.5);
}

/// The `sas-ssd` profile meets the measurements of the drive that it models, at depth 1, and one
/// port's share of the drive's data sheet.
#[test]
fn the_sas_drive_is_the_one_that_was_measured() {
    let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.1;
    let reads = full("sas-ssd").run(READS, 20_000);
    let read_us = percentile_us(&reads.read_ns, 0.5);
    assert!(near(read_us, 37.5), "{read_us} us a read");
    let writes = full("sas-ssd").run(Load { depth: 1, ..WRITES }, 2_000);
    assert!(near(writes.iops(), 72_200.0), "{} writes a second at depth 1", writes.iops());
    let deep = full("sas-ssd").run(Load { depth: 256, ..READS }, 100_000);
    assert!((400_000.0..720_000.0).contains(&deep.iops()), "{} IOPS", deep.iops());
    let steady = steady("sas-ssd").run(WRITES, 100_000);
    assert!((120_000.0..350_000.0).contains(&steady.iops()), "{} writes a second", steady.iops());
}
