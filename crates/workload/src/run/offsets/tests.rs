use super::*;
use crate::job::{BlockSizes, Verbs};
use qpair_block::DeviceSpec;
use qpair_kernel::Mode;

fn job() -> Job {
    Job::new("t", DeviceSpec::parse("null:size=1MiB").unwrap(), Mode::default())
}

fn all(job: &Job, units: u64, count: usize) -> Vec<(u64, u32)> {
    let region = Region { begin_bytes: 8192, len_bytes: units * 4096 };
    let mut offsets = Offsets::new(job, region, 7).unwrap();
    let mut random = generator(job.seed, 0);
    let max = used_sizes(job).1;
    (0..count).map(|_| offsets.next(Direction::Read, max, &mut random)).collect()
}

#[test]
fn a_map_visits_each_block_once() {
    for units in [1, 2, 3, 64, 100, 1000] {
        for _ in 0..2 {
            let mut ranges = all(&job(), units, units as usize);
            ranges.sort_unstable();
            let expected: Vec<_> = (0..units).map(|unit| (8192 + unit * 4096, 4096)).collect();
            assert_eq!(ranges, expected);
        }
    }
}

#[test]
fn a_map_of_mixed_sizes_covers_all_without_overlap() {
    let sizes = BlockSizes::Split(vec![(4096, 50), (16384, 50)]);
    let job = Job { block_sizes: [sizes.clone(), sizes.clone(), sizes], ..job() };
    let mut ranges = all(&job, 101, 60);
    let mut covered = 0;
    // Up to the end of the first round.
    ranges.truncate(
        ranges
            .iter()
            .position(|(_, len)| {
                covered += u64::from(*len);
                covered == 101 * 4096
            })
            .unwrap()
            + 1,
    );
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].0 + u64::from(pair[0].1) == pair[1].0));
}

#[test]
fn sequential_order_begins_again_at_the_end() {
    let job = Job { order: Order::Sequential, ..job() };
    let starts: Vec<u64> = all(&job, 3, 5).into_iter().map(|range| range.0).collect();
    assert_eq!(starts, [8192, 12288, 16384, 8192, 12288]);
}

#[test]
fn unlike_blocks_are_unlike() {
    for (distribution, least) in [
        (Distribution::Zipf { theta: 1.2 }, 0.5),
        (Distribution::Pareto { h: 0.2 }, 0.7),
        (Distribution::Normal { deviation_percent: 5.0 }, 0.9),
    ] {
        let job = Job { distribution: distribution.clone(), verbs: Verbs::Read, ..job() };
        let mut counts = vec![0u32; 1000];
        for (start, _) in all(&job, 1000, 20_000) {
            counts[((start - 8192) / 4096) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let fifth: u32 = counts[..200].iter().sum();
        assert!(f64::from(fifth) > least * 20_000.0, "{distribution:?}: {fifth}");
    }
}

fn kib(job: &Job, units: u64, count: usize) -> Vec<u64> {
    all(job, units, count).into_iter().map(|range| (range.0 - 8192) / 1024).collect()
}

/// The offsets that fio 3.33 reads in a file of the region's size, from its logs.
#[test]
fn steps_are_fios() {
    let steps = |skip_bytes| Steps { skip_bytes, ..Steps::default() };
    let job = |steps| Job { order: Order::Sequential, steps, ..job() };
    // rw=read:12k
    assert_eq!(kib(&job(steps(12288)), 16, 6), [0, 16, 32, 48, 0, 16]);
    // rw=read:-8k
    let back = [0, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0, 56];
    assert_eq!(kib(&job(steps(-8192)), 16, 17), back);
    // rw=read:-4k
    assert_eq!(kib(&job(steps(-4096)), 16, 3), [0, 0, 0]);
    // The step is longer than the region.
    assert_eq!(kib(&job(steps(1 << 20)), 16, 2), [0, 0]);
    assert_eq!(kib(&job(steps(-(1 << 20))), 16, 2), [0, 0]);
}

#[test]
fn runs_begin_at_random_places() {
    let steps = Steps { random_every: 4, ..Steps::default() };
    let job = Job { random_map: false, steps, ..job() };
    let places = kib(&job, 1000, 400);
    let follow = places.windows(2).filter(|pair| pair[1] == pair[0] + 4).count();
    assert!((300..310).contains(&follow), "{follow}");
    assert!(places.chunks(4).all(|run| run[0] + 12 == run[3] || run[0] > 4 * 996), "{places:?}");
    let steps = Steps { repeat: true, ..steps };
    let places = kib(&Job { steps, ..job }, 1000, 400);
    assert!(places.chunks(4).all(|run| run.iter().all(|place| *place == run[0])));
}

/// `zonemode=strided zonesize=16k zonerange=8k zoneskip=48k`, from fio's log.
#[test]
fn strides_are_fios() {
    let stride = |part_bytes| Stride { move_bytes: 16384, part_bytes, skip_bytes: 49152 };
    let job = |order, part| Job { order, stride: Some(stride(part)), ..job() };
    let two = kib(&job(Order::Sequential, 8192), 32, 14);
    assert_eq!(two, [0, 4, 0, 4, 56, 60, 56, 60, 112, 116, 112, 116, 0, 4]);
    let one = kib(&job(Order::Sequential, 16384), 32, 10);
    assert_eq!(one, [0, 4, 8, 12, 64, 68, 72, 76, 0, 4]);
    // In random order, each block of a part is visited once.
    let mut random = kib(&job(Order::Random, 16384), 32, 8);
    random[..4].sort_unstable();
    random[4..].sort_unstable();
    assert_eq!(random, [0, 4, 8, 12, 64, 68, 72, 76]);
}

#[test]
fn zones_have_their_shares() {
    let zone = |access_percent, size| Zone { access_percent, size: Extent::Percent(size) };
    // zoned:50/5:30/15:20/70: the last tenth is not visited.
    let zones = vec![zone(50, 5), zone(30, 15), zone(20, 70)];
    let distribution = Distribution::Zoned(zones);
    let job = Job { distribution, random_map: false, ..job() };
    let places = kib(&job, 1000, 20_000);
    let share = |from: u64, to: u64| {
        places.iter().filter(|place| (from * 4..to * 4).contains(place)).count() / 200
    };
    let shares = [share(0, 50), share(50, 200), share(200, 900), share(900, 1000)];
    assert!(shares[0].abs_diff(50) < 3 && shares[1].abs_diff(30) < 3, "{shares:?}");
    assert!(shares[2].abs_diff(20) < 3 && shares[3] == 0, "{shares:?}");
    let zone = |access_percent, bytes| Zone { access_percent, size: Extent::Bytes(bytes) };
    let distribution = Distribution::Zoned(vec![zone(100, 8192), zone(0, 4096)]);
    let job = Job { distribution, ..job };
    assert!(kib(&job, 1000, 100).iter().all(|place| *place < 8));
    // Zones beyond the end of the region consist of its last block.
    assert!(kib(&job, 1, 100).iter().all(|place| *place == 0));
}

#[test]
fn alignment_holds() {
    let job = Job {
        align_bytes: 16384,
        random_map: false,
        block_sizes: [const { BlockSizes::Fixed(4096) }; 3],
        ..job()
    };
    let places = kib(&job, 64, 100);
    assert!(places.iter().all(|place| place % 16 == 0));
    assert!(places.contains(&240));
}
