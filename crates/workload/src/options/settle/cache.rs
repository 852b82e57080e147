//! Settles whether a job bypasses the page cache.

use qpair_block::Result;
use qpair_kernel::Interface;

use super::interface::Way;
use super::reader::Reader;
use super::targets::Place;
use crate::options::value;

/// Settles `direct`, or its opposite `buffered`. A job with atomic writes uses direct I/O. By
/// default, a job uses the page cache, as in fio.
pub(super) fn direct(reader: &Reader<'_>, way: &Way, place: &Place, atomic: bool) -> Result<bool> {
    let own = |name: &str| reader.own(name).map(|given| value::boolean(given.value.as_deref()));
    if let (Some(Ok(direct)), Some(Ok(buffered))) = (own("direct"), own("buffered"))
        && direct == buffered
    {
        let digit = u8::from(direct);
        let what = format!("direct={digit} and buffered={digit} contradict each other");
        return Err(reader.contradiction("buffered", what));
    }
    let (direct, buffered) = (reader.flag("direct")?, reader.flag("buffered")?);
    let last = reader.last(&["direct", "buffered"]).map(|given| given.option.name);
    let mut direct = match last {
        Some("buffered") => buffered == Some(false),
        _ => direct == Some(true),
    };
    if atomic && !direct && place.has_files() {
        if let Some(last) = last {
            let what = "atomic writes bypass the page cache, but the job is buffered";
            return Err(reader
                .contradiction(last, what)
                .hint("give direct=1, or leave atomic out"));
        }
        // As in fio, atomic writes imply direct I/O.
        direct = true;
    }
    if way.mode.interface == Interface::Passthrough || !place.has_files() {
        if !direct && last.is_some() {
            let name = last.unwrap_or_default();
            reader.note(format!("{name} has no effect: there is no page cache on this way"));
        }
        // There is no page cache on this path.
        return Ok(true);
    }
    if !direct {
        let why = if last.is_none() { ", fio's default" } else { "" };
        reader.note(format!(
            "buffered{why}: what is measured is the page cache too (direct=1 goes around it)"
        ));
    }
    Ok(direct)
}
