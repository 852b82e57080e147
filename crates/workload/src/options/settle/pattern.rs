//! Settles the access pattern: directions, sizes, order, random numbers.

use qpair_block::Result;

use super::reader::Reader;
use crate::job::{BlockSizes, Distribution, Extent, Order, Steps, Stride, Verbs, Zone};
use crate::options::value::{self, Read};

pub(super) struct Pattern {
    pub(super) verbs: Verbs,
    pub(super) order: Order,
    pub(super) block_sizes: [BlockSizes; 3],
    pub(super) distribution: Distribution,
    pub(super) random_map: bool,
    pub(super) align_bytes: u32,
    pub(super) steps: Steps,
    pub(super) stride: Option<Stride>,
}

/// The largest block, in bytes.
const BLOCK_BYTES_MAX: u64 = 1 << 30;

pub(super) fn pattern(reader: &Reader<'_>) -> Result<Pattern> {
    let (verbs, mut order, steps) = verbs(reader)?;
    let mut pattern = Pattern {
        verbs,
        order,
        block_sizes: block_sizes(reader)?,
        distribution: Distribution::Uniform,
        random_map: true,
        align_bytes: 0,
        steps,
        stride: stride(reader)?,
    };
    if order == Order::Random {
        let shares = reader.each("percentage_random", |text| match text {
            "0" => Ok(false),
            "100" => Ok(true),
            _ => Err("must be 0 or 100; a mix of both is not supported".to_owned()),
        })?;
        let shares = shares.map(|random| random.unwrap_or(true));
        if shares != [shares[0]; 3] {
            let what = "percentage_random cannot differ between reads and writes";
            return Err(reader.contradiction("percentage_random", what));
        }
        if !shares[0] {
            order = Order::Sequential;
        }
    }
    pattern.order = order;
    if verbs == Verbs::TrimWrite && pattern.block_sizes[1] != pattern.block_sizes[2] {
        reader.note("rw=trimwrite: a write is as large as the trim before it; the size of writes has no effect");
        pattern.block_sizes[1] = pattern.block_sizes[2].clone();
    }
    if order == Order::Random {
        if steps.random_every > 1 {
            reader.note("rw=...:N: blocks may come again, as with norandommap");
        }
        let size = |text: &str| reader.size(text);
        pattern.distribution = reader
            .with("random_distribution", |text| distribution(text, &size))?
            .unwrap_or(Distribution::Uniform);
        let no_map = reader.is_set("norandommap")?;
        let every_block_once = reader.word("random_generator")? == Some("lfsr");
        pattern.align_bytes = align(reader)?;
        // As in fio, a distribution that is not uniform requires repeated blocks, and so does an
        // alignment.
        pattern.random_map = pattern.distribution == Distribution::Uniform
            && pattern.align_bytes == 0
            && steps.random_every < 2
            && (!no_map || every_block_once);
    }
    Ok(pattern)
}

fn verbs(reader: &Reader<'_>) -> Result<(Verbs, Order, Steps)> {
    let whole = reader.text("rw").unwrap_or("read");
    let (text, modifier) = match whole.split_once(':') {
        Some((text, modifier)) => (text, Some(modifier.trim())),
        None => (whole, None),
    };
    let (verb, order) = match text.strip_prefix("rand") {
        Some(verb) => (verb, Order::Random),
        None => (text, Order::Sequential),
    };
    let verbs = match verb {
        "read" => Verbs::Read,
        "write" => Verbs::Write,
        "trim" => Verbs::Trim,
        "rw" | "readwrite" => Verbs::Mixed { read_percent: read_percent(reader)? },
        "trimwrite" => Verbs::TrimWrite,
        _ => {
            // The error names the valid words.
            reader.word("rw")?;
            Verbs::Read
        }
    };
    if text == "randreadwrite" {
        reader.word("rw")?;
    }
    let steps = match modifier {
        Some(modifier) => steps(reader, order, modifier)?,
        None => Steps::default(),
    };
    Ok((verbs, order, steps))
}

/// Parses the text after the colon of `rw`: bytes to skip in sequential order, or the number of
/// requests for each random place in random order.
fn steps(reader: &Reader<'_>, order: Order, modifier: &str) -> Result<Steps> {
    let wrong = |why: &str| match reader.last(&["rw"]) {
        Some(given) => reader.wrong(given, why),
        None => reader.contradiction("rw", why),
    };
    let mut steps = Steps::default();
    if order == Order::Sequential {
        let (sign, size) = match modifier.strip_prefix('-') {
            Some(size) => (-1, size),
            None => (1, modifier),
        };
        let bytes = reader.size(size).map_err(|why| wrong(&format!("the step {why}")))?;
        let bytes = i64::try_from(bytes).map_err(|_| wrong("the step is too large"))?;
        steps.skip_bytes = sign * bytes;
    } else {
        let count = value::bytes(modifier, value::KbBase::Binary).ok();
        steps.random_every = count
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| *count > 0)
            .ok_or_else(|| wrong("the number of requests for each random place is not a number"))?;
        steps.repeat = reader.word("rw_sequencer")? == Some("identical");
    }
    Ok(steps)
}

/// Settles `zonemode=strided` and its sizes.
fn stride(reader: &Reader<'_>) -> Result<Option<Stride>> {
    if reader.word("zonemode")? != Some("strided") {
        return Ok(None);
    }
    let move_bytes = reader.bytes("zonesize")?.unwrap_or(0);
    if move_bytes == 0 {
        let what = "zonemode=strided needs zonesize";
        return Err(reader.contradiction("zonemode", what).hint("give zonesize=256m, for example"));
    }
    let part_bytes = reader.bytes("zonerange")?.filter(|bytes| *bytes > 0).unwrap_or(move_bytes);
    let skip_bytes = reader.bytes("zoneskip")?.unwrap_or(0);
    Ok(Some(Stride { move_bytes, part_bytes, skip_bytes }))
}

/// Settles `blockalign`.
fn align(reader: &Reader<'_>) -> Result<u32> {
    let align = reader.each("blockalign", |text| checked(reader.size(text)?))?;
    let [read, write, trim] = align.map(|bytes| bytes.unwrap_or(0));
    if (read, read) != (write, trim) {
        let what = "blockalign cannot differ between reads and writes";
        return Err(reader.contradiction("blockalign", what));
    }
    Ok(read)
}

/// Settles the percentage of reads. The later one of `rwmixread` and `rwmixwrite` counts.
fn read_percent(reader: &Reader<'_>) -> Result<u8> {
    let reads = reader.number("rwmixread", 0, 100)?;
    let writes = reader.number("rwmixwrite", 0, 100)?;
    let last = reader.last(&["rwmixread", "rwmixwrite"]).map(|given| given.option.name);
    let percent = match (last, reads, writes) {
        (Some("rwmixread"), Some(reads), _) => reads,
        (_, _, Some(writes)) => 100 - writes,
        _ => 50,
    };
    if let (Some(reads), Some(writes)) = (reads, writes)
        && reads + writes != 100
    {
        reader.note(format!(
            "rwmixread={reads} and rwmixwrite={writes}: the last one counts, {percent} % reads"
        ));
    }
    Ok(percent as u8)
}

/// Settles block sizes. As in fio, `bssplit` takes precedence over `bsrange`, and that over `bs`.
fn block_sizes(reader: &Reader<'_>) -> Result<[BlockSizes; 3]> {
    let size = |text: &str| checked(reader.size(text)?);
    let fixed = reader.each("bs", size)?;
    let ranges = reader.each("bsrange", |text| value::range(text, size))?;
    let splits = reader.each("bssplit", |text| {
        let parts = reader.split(text)?;
        parts
            .into_iter()
            .map(|(bytes, share)| Ok((checked(bytes)?, share)))
            .collect::<Read<Vec<_>>>()
    })?;
    let named = ["bssplit", "bsrange", "bs"].map(|name| reader.last(&[name]).map(|_| name));
    let mut named = named.into_iter().flatten();
    if let (Some(first), Some(second)) = (named.next(), named.next()) {
        reader.note(format!("{first} goes before {second}"));
    }
    let [split_r, split_w, split_t] = splits;
    let of = |split: Option<Vec<(u32, u8)>>, at: usize| match (split, ranges[at], fixed[at]) {
        (Some(parts), _, _) if parts.len() == 1 => BlockSizes::Fixed(parts[0].0),
        (Some(parts), _, _) => BlockSizes::Split(parts),
        (None, Some((low, high)), _) if low < high => BlockSizes::Range(low, high),
        (None, Some((bytes, _)), _) | (None, None, Some(bytes)) => BlockSizes::Fixed(bytes),
        (None, None, None) => BlockSizes::Fixed(4096),
    };
    Ok([of(split_r, 0), of(split_w, 1), of(split_t, 2)])
}

fn checked(bytes: u64) -> Read<u32> {
    match bytes {
        0 => Err("is a block of 0 bytes".to_owned()),
        1..=BLOCK_BYTES_MAX => Ok(bytes as u32),
        _ => Err("is over 1g, the largest block".to_owned()),
    }
}

fn distribution(text: &str, size: &dyn Fn(&str) -> Read<u64>) -> Read<Distribution> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    if matches!(name, "zoned" | "zoned_abs") {
        return zones(rest, name == "zoned_abs", size).map(Distribution::Zoned);
    }
    if rest.contains([':', ',']) {
        return Err(
            "has more than one number: a centre, or distributions by direction, are not supported"
                .to_owned(),
        );
    }
    let number = |default: f64| match rest {
        "" => Ok(default),
        rest => value::float(rest),
    };
    match name {
        "random" if rest.is_empty() => Ok(Distribution::Uniform),
        "zipf" => match number(1.1)? {
            theta if theta > 0.0 && theta != 1.0 && theta <= 100.0 => {
                Ok(Distribution::Zipf { theta })
            }
            _ => Err("needs a theta over 0 that is not 1".to_owned()),
        },
        "pareto" => match number(0.2)? {
            h if h > 0.0 && h < 1.0 => Ok(Distribution::Pareto { h }),
            _ => Err("needs a power between 0 and 1".to_owned()),
        },
        "normal" | "gauss" => match number(0.0)? {
            deviation if rest.is_empty() || !(0.0..=100.0).contains(&deviation) => {
                Err("needs a deviation from 0 to 100 percent".to_owned())
            }
            deviation_percent => Ok(Distribution::Normal { deviation_percent }),
        },
        _ => {
            Err("is not known: choose random, zipf, pareto, normal, zoned or zoned_abs".to_owned())
        }
    }
}

/// Parses zones by their shares of requests and their lengths: `50/5:30/15:20/`. An omitted length
/// means the rest.
fn zones(text: &str, are_bytes: bool, size: &dyn Fn(&str) -> Read<u64>) -> Read<Vec<Zone>> {
    if text.contains(',') {
        return Err("has zones by direction, which are not supported".to_owned());
    }
    let percent = |text: &str| match text.trim().trim_end_matches('%').parse::<u8>() {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => Err(format!("has \"{text}\", which is not a percentage")),
    };
    let mut zones = Vec::new();
    let mut blank = Vec::new();
    for part in text.split(':') {
        let (access, length) = part.split_once('/').unwrap_or((part, ""));
        let size = match length.trim() {
            "" => {
                blank.push(zones.len());
                Extent::Bytes(0)
            }
            length if are_bytes => Extent::Bytes(size(length)?),
            length => Extent::Percent(percent(length)?),
        };
        zones.push(Zone { access_percent: percent(access)?, size });
    }
    if zones.len() > 256 {
        return Err("has more than 256 zones".to_owned());
    }
    let sum: u32 = zones.iter().map(|zone| u32::from(zone.access_percent)).sum();
    if sum != 100 {
        return Err(format!("has shares of requests that add up to {sum}, not 100"));
    }
    if are_bytes {
        return match blank.is_empty() {
            true => Ok(zones),
            false => Err("has a zone without a length".to_owned()),
        };
    }
    let given: u32 = zones
        .iter()
        .map(|zone| if let Extent::Percent(percent) = zone.size { u32::from(percent) } else { 0 })
        .sum();
    // As in fio, the part beyond the sum of the lengths is not visited.
    if given > 100 {
        return Err(format!("has lengths that add up to {given} %"));
    }
    let mut rest = 100 - given;
    for (done, at) in blank.iter().enumerate() {
        let share = rest.div_ceil((blank.len() - done) as u32);
        rest -= share;
        zones[*at].size = Extent::Percent(share as u8);
    }
    Ok(zones)
}

/// Returns the seed of a clone, which differs from that of every other job of a run, and is the
/// same in every run.
pub(super) fn seed(reader: &Reader<'_>, job_number: u32) -> Result<u64> {
    let given = reader.bytes("randseed")?;
    let repeat = reader.flag("randrepeat")?.unwrap_or(true) | reader.is_set("allrandrepeat")?;
    let base = match given {
        Some(seed) => seed,
        None if repeat => 0x89,
        None => {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(job_number)
        }
    };
    Ok(mix(base.wrapping_add(u64::from(job_number).wrapping_mul(0x9e37_79b9_7f4a_7c15))))
}

/// Spreads a number over all bits: `SplitMix64`'s finalizer.
pub(super) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
