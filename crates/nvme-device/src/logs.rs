//! Log pages (Base §5.16), and the Identify structures that do not belong to a single namespace.

use qpair_nvme_wire::command::{admin, io};
use qpair_nvme_wire::{IDENTIFY_BYTES, Status};

use crate::backend::{Counts, Names};

pub(crate) const ERRORS: u8 = 0x01;
const HEALTH: u8 = 0x02;
const FIRMWARE: u8 = 0x03;
pub(crate) const CHANGED_NAMESPACES: u8 = 0x04;
const EFFECTS: u8 = 0x05;

/// The size of a data unit of the health log, in bytes.
const DATA_UNIT_BYTES: u64 = 512 * 1000;

pub(crate) fn log_page(
    page: u8,
    counts: Counts,
    firmware: &str,
    more: &[u8],
) -> Result<Vec<u8>, Status> {
    match page {
        // The controller records no errors.
        ERRORS => Ok(vec![0; 64]),
        HEALTH => Ok(health(counts)),
        FIRMWARE => {
            let mut page = vec![0; 512];
            page[0] = 1;
            page[8..16].fill(b' ');
            let len = firmware.len().min(8);
            page[8..8 + len].copy_from_slice(&firmware.as_bytes()[..len]);
            Ok(page)
        }
        EFFECTS => Ok(effects(more)),
        _ => Err(Status::INVALID_LOG_PAGE),
    }
}

/// Returns the log of changed namespaces: their numbers in order, or a mark that there are too
/// many.
pub(crate) fn changed_namespaces(changed: impl ExactSizeIterator<Item = u32>) -> Vec<u8> {
    let mut page = vec![0; 4096];
    if changed.len() > page.len() / 4 {
        page[..4].fill(0xFF);
        return page;
    }
    for (chunk, number) in page.chunks_exact_mut(4).zip(changed) {
        chunk.copy_from_slice(&number.to_le_bytes());
    }
    page
}

fn health(counts: Counts) -> Vec<u8> {
    let mut page = vec![0; 512];
    // 35 degrees Celsius, in kelvin; all spare blocks left, and 10 percent of them as the
    // threshold.
    page[1..3].copy_from_slice(&308u16.to_le_bytes());
    page[3] = 100;
    page[4] = 10;
    for (at, value) in [
        (32, counts.bytes_read.div_ceil(DATA_UNIT_BYTES)),
        (48, counts.bytes_written.div_ceil(DATA_UNIT_BYTES)),
        (64, counts.reads),
        (80, counts.writes),
        (160, counts.media_errors),
    ] {
        page[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    page
}

/// Returns the log of supported commands, and of which of them change blocks. `more` are admin
/// commands that not every controller has.
fn effects(more: &[u8]) -> Vec<u8> {
    const SUPPORTED: u32 = 1;
    const CHANGES_BLOCKS: u32 = 1 << 1;
    let mut page = vec![0; 4096];
    let mut put = |at: usize, opcode: u8, effects: u32| {
        let at = at + 4 * usize::from(opcode);
        page[at..at + 4].copy_from_slice(&effects.to_le_bytes());
    };
    for &opcode in [
        admin::DELETE_SQ,
        admin::CREATE_SQ,
        admin::GET_LOG_PAGE,
        admin::DELETE_CQ,
        admin::CREATE_CQ,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
    ]
    .iter()
    .chain(more)
    {
        put(0, opcode, SUPPORTED);
    }
    for opcode in [io::FLUSH, io::READ, io::COMPARE] {
        put(1024, opcode, SUPPORTED);
    }
    for opcode in [io::WRITE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT] {
        put(1024, opcode, SUPPORTED | CHANGES_BLOCKS);
    }
    page
}

/// Returns the identification descriptors of a namespace (Base §5.17.2.3).
pub(crate) fn descriptors(names: &Names) -> [u8; IDENTIFY_BYTES] {
    let mut data = [0; IDENTIFY_BYTES];
    let mut at = 0;
    let all: [&[u8]; 3] = [&names.eui64, &names.nguid, &names.uuid];
    for (kind, name) in (1..).zip(all) {
        if name.iter().any(|byte| *byte != 0) {
            data[at..at + 2].copy_from_slice(&[kind, name.len() as u8]);
            data[at + 4..at + 4 + name.len()].copy_from_slice(name);
            at += 4 + name.len();
        }
    }
    data
}

/// Returns those of the ascending `numbers` that are above `nsid`, as a list.
pub(crate) fn active_namespaces(
    numbers: impl Iterator<Item = u32>,
    nsid: u32,
) -> [u8; IDENTIFY_BYTES] {
    let mut data = [0; IDENTIFY_BYTES];
    let numbers = numbers.filter(|number| *number > nsid);
    for (chunk, number) in data.chunks_exact_mut(4).zip(numbers) {
        chunk.copy_from_slice(&number.to_le_bytes());
    }
    data
}
