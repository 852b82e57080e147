//! Points in time, and the parts that lead to them.

use std::collections::BTreeMap;

use crate::manifest::{FULL, Manifest, Part};

/// A point to which a store can be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The time of the point, in milliseconds since 1970. All commits that were acknowledged before
    /// it are in it.
    pub time_ms: u64,
    /// The chain of parts that has the point.
    pub chain: u64,
    /// The newest commit of the store in it.
    pub timestamp: u64,
}

/// Returns all points, in the order of their times.
pub(crate) fn points(manifest: &Manifest) -> Vec<Point> {
    let mut found = Vec::new();
    for full in manifest.fulls() {
        let chain = full.chain;
        let own = Point { time_ms: full.time_ms, chain, timestamp: full.usable_from };
        let reached = reach(manifest, full);
        if reached.contains_key(&full.usable_from) {
            found.push(own);
        }
        let ends = manifest.parts.values().filter(|part| part.chain == chain && part.level < FULL);
        let ends =
            ends.filter(|part| part.to >= full.usable_from && reached.contains_key(&part.to));
        found.extend(ends.map(|part| Point { time_ms: part.time_ms, chain, timestamp: part.to }));
    }
    found.sort_unstable_by_key(|point| (point.chain, point.timestamp, point.time_ms));
    found.dedup_by_key(|point| (point.chain, point.timestamp));
    found.sort_unstable();
    found
}

/// The cheapest way to a commit: the bytes to read, and the last part.
type Ways<'a> = BTreeMap<u64, (u64, Option<&'a Part>)>;

/// Returns the commits that parts lead to from the end of a full part.
fn reach<'a>(manifest: &'a Manifest, full: &Part) -> Ways<'a> {
    let mut ways = Ways::from([(full.to, (0, None))]);
    let parts = manifest.parts.values();
    let mut parts: Vec<&Part> =
        parts.filter(|part| part.chain == full.chain && part.level < FULL).collect();
    parts.sort_unstable_by_key(|part| (part.from, part.to));
    for part in parts {
        let Some((bytes, _)) = ways.get(&part.from) else { continue };
        // A request costs about as much time as some bytes.
        let bytes = bytes + part.bytes + (64 << 10);
        if ways.get(&part.to).is_none_or(|(known, _)| bytes < *known) {
            ways.insert(part.to, (bytes, Some(part)));
        }
    }
    ways
}

/// Returns the parts that lead to a point, from the full one on.
pub(crate) fn parts_of<'a>(manifest: &'a Manifest, point: &Point) -> Option<Vec<&'a Part>> {
    let of_chain = |full: &&Part| full.chain == point.chain && full.usable_from <= point.timestamp;
    let found = manifest.fulls().filter(of_chain).filter_map(|full| {
        let ways = reach(manifest, full);
        let (bytes, mut last) = *ways.get(&point.timestamp)?;
        let mut parts = Vec::new();
        while let Some(part) = last {
            parts.push(part);
            last = ways.get(&part.from)?.1;
        }
        parts.push(full);
        parts.reverse();
        Some((bytes + full.bytes, parts))
    });
    found.min_by_key(|(bytes, _)| *bytes).map(|(_, parts)| parts)
}

/// Limits on how long points stay, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// How long the store can be restored to some point of a time.
    pub(crate) points_ms: u64,
    /// How long parts stay that were merged into others; 8 times as long for each level.
    pub(crate) fine_ms: u64,
}

/// Returns the parts that are no longer needed.
pub(crate) fn expired(manifest: &Manifest, keep: Keep, now_ms: u64) -> Vec<u64> {
    let cutoff = now_ms.saturating_sub(keep.points_ms);
    let fine = |level: u8| {
        now_ms.saturating_sub(keep.fine_ms.saturating_mul(1 << (3 * u32::from(level)).min(62)))
    };
    // The newest full part that leads to all points since the cutoff.
    let base = manifest
        .fulls()
        .filter(|full| full.time_ms <= cutoff)
        .max_by_key(|full| (full.chain, full.usable_from));
    let is_old = |part: &Part| match base {
        None => false,
        Some(base) if part.chain != base.chain => part.chain < base.chain,
        Some(base) if part.level == FULL => part.usable_from < base.usable_from,
        Some(base) => part.to <= base.to,
    };
    // The way from a full part that ends within a merged part needs the parts that were merged.
    let has_end_of_full = |by: &Part| {
        let inside = |full: &Part| by.from < full.to && full.to < by.to;
        manifest.fulls().any(|full| full.chain == by.chain && inside(full))
    };
    let is_covered = |part: &Part| {
        part.level < FULL
            && part.time_ms <= fine(part.level)
            && manifest.level(part.chain, part.level + 1).any(|by| {
                by.level < FULL && by.from <= part.from && part.to <= by.to && !has_end_of_full(by)
            })
    };
    let parts = manifest.parts.values();
    parts.filter(|part| is_old(part) || is_covered(part)).map(|part| part.id).collect()
}

/// Returns parts that follow one another and should become one: the level, and the parts.
pub(crate) fn to_merge(manifest: &Manifest, chain: u64, fan_in: usize) -> Option<(u8, Vec<&Part>)> {
    /// The highest level of merged parts: with a fan-in of 16 and a part a second, a day.
    const LEVEL_MAX: u8 = 4;
    for level in 0..LEVEL_MAX {
        let merged = manifest.level(chain, level + 1).map(|part| part.to).max().unwrap_or(0);
        let mut run: Vec<&Part> =
            manifest.level(chain, level).filter(|part| part.from >= merged).collect();
        run.sort_unstable_by_key(|part| part.from);
        run.truncate(fan_in);
        let follow = run.windows(2).all(|pair| pair[0].to == pair[1].from);
        if run.len() == fan_in && follow {
            return Some((level + 1, run));
        }
    }
    None
}
