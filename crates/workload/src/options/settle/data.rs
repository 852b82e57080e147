//! Settles the content of writes, their durability and their verification.

use qpair_block::Result;

use super::pattern::Pattern;
use super::reader::Reader;
use crate::job::{BlockSizes, Content, Direction, Shape, Verbs, Verify, VerifyMethod};
use crate::options::value;

pub(super) fn verify(reader: &Reader<'_>, pattern: &Pattern) -> Result<Option<Verify>> {
    let method = match reader.word("verify")? {
        None | Some("0") => return Ok(None),
        Some("crc32") => VerifyMethod::Crc32,
        Some("crc64") => VerifyMethod::Crc64,
        Some("meta") => VerifyMethod::Meta,
        Some("pattern") => VerifyMethod::Pattern,
        Some("xxhash") => VerifyMethod::XxHash,
        Some("md5") => VerifyMethod::Md5,
        Some("sha1") => VerifyMethod::Sha1,
        Some("sha256") => VerifyMethod::Sha256,
        Some("sha512") => VerifyMethod::Sha512,
        Some("sha3-224") => VerifyMethod::Sha3_224,
        Some("sha3-256") => VerifyMethod::Sha3_256,
        Some("sha3-384") => VerifyMethod::Sha3_384,
        Some("sha3-512") => VerifyMethod::Sha3_512,
        Some(_) => VerifyMethod::Crc32c,
    };
    let writes = pattern.verbs != Verbs::Read;
    let bytes = match method {
        VerifyMethod::Pattern => {
            reader.with("verify_pattern", value::pattern)?.ok_or_else(|| {
                reader
                    .contradiction("verify", "verify=pattern needs a pattern")
                    .hint("give verify_pattern=0xa5, for example")
            })?
        }
        _ => Vec::new(),
    };
    let interval = reader.number("verify_interval", 0, 1 << 30)?.unwrap_or(0);
    if interval > 0 {
        for sizes in &pattern.block_sizes {
            if let Some(bytes) = all(sizes).into_iter().find(|bytes| bytes % interval != 0) {
                let what =
                    format!("verify_interval={interval} does not divide the block size {bytes}");
                return Err(reader.contradiction("verify_interval", what));
            }
        }
    }
    let only = reader.is_set("verify_only")?;
    if only && !writes {
        let what = "verify_only checks what the job would write, but it only reads";
        return Err(reader
            .contradiction("verify_only", what)
            .hint("a job that reads and has verify checks what it reads"));
    }
    if only && reader.is_set("time_based")? {
        let what = "verify_only and time_based exclude each other";
        return Err(reader.contradiction("verify_only", what));
    }
    if reader.number("verify_async", 0, u32::MAX)?.is_some_and(|threads| threads > 0) {
        reader.note(
            "verify_async is done without threads of its own: the job's thread checks blocks",
        );
    }
    let after = reader.flag("do_verify")?.unwrap_or(true) && writes && !only;
    let backlog = reader.number("verify_backlog", 0, u32::MAX)?.unwrap_or(0);
    let batch =
        if backlog > 0 { reader.number("verify_backlog_batch", 0, u32::MAX)? } else { None };
    Ok(Some(Verify {
        method,
        pattern: bytes,
        interval_bytes: interval,
        after,
        only,
        fatal: reader.is_set("verify_fatal")?,
        // As in fio, nothing is read without do_verify.
        backlog: if after { backlog } else { 0 },
        backlog_batch: batch.unwrap_or(0),
        dump: reader.is_set("verify_dump")?,
    }))
}

pub(super) fn content(reader: &Reader<'_>, is_verified: bool) -> Result<Content> {
    if is_verified {
        // Verification determines the content of blocks.
        return Ok(Content::Random);
    }
    if let Some(shape) = shape(reader)? {
        return Ok(Content::Shaped(shape));
    }
    if reader.is_set("zero_buffers")? {
        return Ok(Content::Zeroes);
    }
    if let Some(pattern) = reader.with("buffer_pattern", value::pattern)? {
        return Ok(Content::Pattern(pattern));
    }
    let refill = reader.is_set("refill_buffers")?;
    let scramble = reader.flag("scramble_buffers")?.unwrap_or(true);
    Ok(match (refill, scramble) {
        (true, _) => Content::Refill,
        (false, true) => Content::Unique,
        (false, false) => Content::Random,
    })
}

/// Settles `buffer_compress_percentage` and `dedupe_percentage`. As in fio, they take precedence
/// over other options of content, and their blocks are generated anew for each write.
fn shape(reader: &Reader<'_>) -> Result<Option<Shape>> {
    let compress = reader.number("buffer_compress_percentage", 0, 100)?.unwrap_or(0);
    let dedupe = reader.number("dedupe_percentage", 0, 100)?.unwrap_or(0);
    reader.word("dedupe_mode")?;
    if compress == 0 && dedupe == 0 {
        return Ok(None);
    }
    reader.allow(&["refill_buffers", "scramble_buffers"]);
    let chunk = match compress {
        0 => None,
        _ => reader.number("buffer_compress_chunk", 0, 1 << 30)?,
    };
    Ok(Some(Shape {
        compress_percent: compress as u8,
        chunk_bytes: chunk.unwrap_or(512),
        fixed: reader.with("buffer_pattern", value::pattern)?.unwrap_or_else(|| vec![0]),
        dedupe_percent: dedupe as u8,
    }))
}

pub(super) struct Durability {
    pub(super) flush_blocks: u32,
    pub(super) flush_at_end: bool,
    pub(super) force_unit_access: bool,
    pub(super) atomic: bool,
}

pub(super) fn durability(reader: &Reader<'_>, verbs: Verbs) -> Result<Durability> {
    let mut durability = Durability {
        flush_blocks: 0,
        flush_at_end: false,
        force_unit_access: false,
        atomic: false,
    };
    if verbs == Verbs::Read {
        // There is nothing to make durable. fio silently ignores these options.
        for name in ["fsync", "fdatasync", "end_fsync", "fsync_on_close", "sync", "atomic"] {
            if let Some(given) = reader.last(&[name])
                && !matches!(given.value.as_deref(), Some("0" | "none"))
            {
                reader.note(format!("{name} has no effect: the job only reads"));
            }
        }
        return Ok(durability);
    }
    let (full, data) =
        (reader.number("fsync", 0, u32::MAX)?, reader.number("fdatasync", 0, u32::MAX)?);
    let periods = [full, data].into_iter().flatten().filter(|blocks| *blocks > 0);
    durability.flush_blocks = periods.min().unwrap_or(0);
    if full.is_some_and(|blocks| blocks > 0) && data.is_some_and(|blocks| blocks > 0) {
        reader.note(
            "fsync and fdatasync are both done as one flush, after the smaller number of writes",
        );
    }
    durability.atomic = reader.is_set("atomic")? && verbs != Verbs::Trim;
    durability.flush_at_end = reader.is_set("end_fsync")? | reader.is_set("fsync_on_close")?;
    durability.force_unit_access = match reader.word("sync")? {
        None | Some("none" | "0") => false,
        Some("dsync") => true,
        Some(_) => {
            reader.note(
                "sync=sync is done as sync=dsync: each write is durable, times of files are not",
            );
            true
        }
    };
    Ok(durability)
}

/// Returns every size that a request can have, except those between the ends of a range. The sizes
/// of a range are multiples of its smaller end.
pub(super) fn all(sizes: &BlockSizes) -> Vec<u32> {
    match sizes {
        BlockSizes::Fixed(bytes) => vec![*bytes],
        BlockSizes::Range(low, high) => vec![*low, *high],
        BlockSizes::Split(parts) => parts.iter().map(|part| part.0).collect(),
    }
}

pub(super) fn used(verbs: Verbs) -> &'static [Direction] {
    match verbs {
        Verbs::Read => &[Direction::Read],
        Verbs::Write => &[Direction::Write],
        Verbs::Trim => &[Direction::Trim],
        Verbs::TrimWrite => &[Direction::Write, Direction::Trim],
        Verbs::Mixed { .. } => &[Direction::Read, Direction::Write],
    }
}
