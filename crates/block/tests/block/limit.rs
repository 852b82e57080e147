//! Tests limits with a clock that advances only on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, IoChannel, LimitDevice, Limits, NullDevice,
    NullOptions, Op, Request,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// The time that a bucket saves, plus the time that a channel takes at once.
const SLACK_NS: u64 = 5 * MS + 100 * US;

struct Rig {
    now_ns: Arc<AtomicU64>,
    device: LimitDevice,
    arena: Arc<Arena>,
}

impl Rig {
    fn new(limits: Limits) -> Self {
        let now_ns = Arc::new(AtomicU64::new(0));
        let clock = now_ns.clone();
        let null = Arc::new(NullDevice::new(NullOptions::default()).unwrap());
        let device = LimitDevice::with_clock(null, Arc::new(move || clock.load(Relaxed)));
        device.set(limits);
        let arena = Arena::new(1 << 20, 64, ArenaOptions::ordinary_pages()).unwrap();
        Self { now_ns, device, arena }
    }

    fn open(&self) -> Box<dyn IoChannel> {
        let options = ChannelOptions { depth: 32, ..ChannelOptions::default() };
        self.device.open_channel(&options).unwrap()
    }

    fn submit(&self, channel: &mut dyn IoChannel, op: Op, len_bytes: u32, tag: u64) {
        let buffer = self.arena.lease().unwrap();
        let request = match op {
            Op::Read => Request::read(0, len_bytes, buffer, tag),
            _ => Request::write(0, len_bytes, buffer, tag),
        };
        channel.submit(request).unwrap();
        channel.kick();
    }

    fn pass(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Relaxed);
    }
}

/// Returns the tags of completed requests, in order.
fn ended(channel: &mut dyn IoChannel) -> Vec<u64> {
    let mut completions = Vec::new();
    channel.poll(&mut completions);
    assert!(completions.iter().all(|completion| completion.result.is_ok()));
    completions.into_iter().map(|completion| completion.tag).collect()
}

#[test]
fn the_rate_holds_for_all_channels_together() {
    for (limits, len_bytes, per_s) in [
        (Limits { ios_per_s: 1_000, ..Limits::default() }, 512, 1_000),
        (Limits { ios_per_s: 1_234_000, ..Limits::default() }, 512, 1_234_000),
        (Limits { bytes_per_s: 1 << 20, ..Limits::default() }, 1 << 20, 1),
        (Limits { bytes_per_s: 512 << 20, ..Limits::default() }, 4096, 128 << 10),
        (Limits { read_bytes_per_s: 7 << 20, ..Limits::default() }, 64 << 10, 7 * 16),
        // The tightest of several limits applies.
        (Limits { ios_per_s: 9_000, bytes_per_s: 1 << 20, ..Limits::default() }, 512, 2048),
    ] {
        let rig = Rig::new(limits);
        let mut channels = [rig.open(), rig.open(), rig.open()];
        let mut rng = fastrand::Rng::with_seed(per_s);
        let cost_ns = 1_000_000_000 / per_s;
        let (mut done, mut start_ns) = (0u64, 0);
        let turns = (2000 * cost_ns / (4 * MS)).clamp(200, 20_000);
        for turn in 0..turns {
            for channel in &mut channels {
                while channel.in_flight() < 16 {
                    rig.submit(channel.as_mut(), Op::Read, len_bytes, turn);
                }
                // Submit as many as possible: a fast limit lets many pass in one turn.
                loop {
                    let count = ended(channel.as_mut()).len() as u64;
                    done += count;
                    if count == 0 {
                        break;
                    }
                    for _ in 0..count {
                        rig.submit(channel.as_mut(), Op::Read, len_bytes, turn);
                    }
                }
            }
            let ns = start_ns;
            // Each channel may have started one request that it has not been charged for, and have
            // a piece left.
            let most = (ns + SLACK_NS + 3 * 100 * US) / cost_ns + 3;
            let least = (ns / cost_ns).saturating_sub(SLACK_NS / cost_ns + 3);
            assert!((least..=most).contains(&done), "{limits:?}: {done} in {ns} ns");
            let step = rng.u64(1..4 * MS);
            rig.pass(step);
            start_ns += step;
        }
        assert!(done > 100 || per_s < 1000, "{limits:?}: {done}");
    }
}

#[test]
fn one_verb_holds_up_no_other_and_the_order_is_kept() {
    let rig = Rig::new(Limits { read_bytes_per_s: 1 << 20, ..Limits::default() });
    let mut channel = rig.open();
    for tag in 0..8 {
        rig.submit(channel.as_mut(), Op::Read, 64 << 10, tag);
        rig.submit(channel.as_mut(), Op::Write, 64 << 10, 100 + tag);
    }
    channel.submit(Request::flush(200)).unwrap();
    let at_once = ended(channel.as_mut());
    assert_eq!(at_once, [0, 100, 101, 102, 103, 104, 105, 106, 107, 200]);
    let mut rest = Vec::new();
    for _ in 0..8 {
        rig.pass(63 * MS);
        rest.extend(ended(channel.as_mut()));
    }
    assert_eq!(rest, [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn limits_change_under_way() {
    let rig = Rig::new(Limits::default());
    let mut channel = rig.open();
    for tag in 0..8 {
        rig.submit(channel.as_mut(), Op::Write, 512, tag);
    }
    assert_eq!(ended(channel.as_mut()).len(), 8);
    let slow = Limits { ios_per_s: 1, ..Limits::default() };
    rig.device.set(slow);
    assert_eq!(rig.device.limits(), slow);
    for tag in 0..8 {
        rig.submit(channel.as_mut(), Op::Write, 512, tag);
    }
    assert_eq!(ended(channel.as_mut()), [0]);
    assert_eq!((channel.in_flight(), ended(channel.as_mut()).len()), (7, 0));
    rig.device.set(Limits::default());
    assert_eq!(ended(channel.as_mut()), [1, 2, 3, 4, 5, 6, 7]);
}
