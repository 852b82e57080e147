//! Shared parts of the store's tests: devices in memory, their bytes, and stores with known
//! content.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]
#![allow(dead_code, reason = "every test uses some of it")]

pub(crate) mod filled;
pub(crate) mod holding;
pub(crate) mod noting;
mod wrapped;

use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, FaultControl, FaultDevice, FaultOptions,
    RamDevice, RamOptions, Request, WaitOptions,
};
use qpair_crypt::EncryptionKey;
use qpair_engine::{Encryption, LogPlace, Store, StoreOptions};

/// The size of the superblocks of a member, in bytes. The member's pages follow.
pub(crate) const SUPERBLOCK_BYTES: u64 = 64 << 10;
/// The offsets of the superblocks in bytes; each has 4096 bytes.
pub(crate) const SUPERBLOCKS: [u64; 2] = [0, 32 << 10];

pub(crate) type Device = Arc<dyn BlockDevice>;

pub(crate) fn key(i: u32) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}

/// Returns the options with the log on a device of its own.
pub(crate) fn with_log(options: StoreOptions, log: &Device) -> StoreOptions {
    StoreOptions { log_place: LogPlace::Device(log.clone()), ..options }
}

pub(crate) fn ram() -> Arc<dyn BlockDevice> {
    ram_of(1 << 20)
}

pub(crate) fn ram_of(size_bytes: u64) -> Arc<dyn BlockDevice> {
    Arc::new(RamDevice::new(RamOptions { size_bytes, ..RamOptions::default() }).unwrap())
}

/// Returns a device that fails on command, the device in memory below it, and the handle that
/// controls the faults.
pub(crate) fn faulty() -> (Arc<dyn BlockDevice>, Arc<dyn BlockDevice>, FaultControl) {
    let below = ram();
    let device = FaultDevice::new(below.clone(), FaultOptions::default()).unwrap();
    let control = device.control();
    (Arc::new(device), below, control)
}

pub(crate) fn options(page_size: usize, frames: u64) -> StoreOptions {
    StoreOptions {
        memory_bytes: frames * page_size as u64,
        workers: 2,
        page_size,
        stripe_unit_bytes: 64 << 10,
        format: true,
        log_segment_bytes: 64 << 10,
        ..StoreOptions::default()
    }
}

/// Returns the options with a key.
pub(crate) fn encrypted(options: StoreOptions) -> StoreOptions {
    StoreOptions { encryption: Some(key_of(7)), ..options }
}

pub(crate) fn key_of(byte: u8) -> Arc<dyn Encryption> {
    Arc::new(EncryptionKey::from_bytes([byte; 32]))
}

pub(crate) fn existing(page_size: usize, frames: u64) -> StoreOptions {
    StoreOptions { format: false, ..options(page_size, frames) }
}

pub(crate) fn reading(page_size: usize, frames: u64) -> StoreOptions {
    StoreOptions { read_only: true, ..existing(page_size, frames) }
}

fn transfer(
    device: &dyn BlockDevice,
    offset_bytes: u64,
    len: usize,
    write: Option<&[u8]>,
) -> Vec<u8> {
    let mut channel =
        device.open_channel(&ChannelOptions { depth: 1, ..ChannelOptions::default() }).unwrap();
    let arena =
        Arena::new(len.next_power_of_two().max(512), 1, ArenaOptions::ordinary_pages()).unwrap();
    let mut buffer = arena.lease().unwrap();
    let request = match write {
        Some(bytes) => {
            buffer.copy_from(0, bytes);
            Request::write(offset_bytes, len as u32, buffer, 0)
        }
        None => Request::read(offset_bytes, len as u32, buffer, 0),
    };
    channel.submit(request).unwrap();
    let mut completions = Vec::new();
    while completions.is_empty() {
        channel
            .wait(&mut completions, WaitOptions { want: 1, linger: Duration::ZERO, timeout: None });
    }
    let completion = completions.pop().unwrap();
    completion.result.unwrap();
    completion.buffer.unwrap().as_slice()[..len].to_vec()
}

/// Reads bytes of a device directly, without a store.
pub(crate) fn read_bytes(device: &dyn BlockDevice, offset_bytes: u64, len: usize) -> Vec<u8> {
    transfer(device, offset_bytes, len, None)
}

/// Changes bytes of a device directly, without a store.
pub(crate) fn write_bytes(device: &dyn BlockDevice, offset_bytes: u64, bytes: &[u8]) {
    transfer(device, offset_bytes, bytes.len(), Some(bytes));
}

/// Returns a device with the same bytes, or the first `size_bytes` of them.
pub(crate) fn copy_of(device: &dyn BlockDevice, size_bytes: u64) -> Arc<dyn BlockDevice> {
    const STEP: u64 = 64 << 10;
    let copy = ram_of(size_bytes);
    for offset in (0..size_bytes).step_by(STEP as usize) {
        let len = STEP.min(size_bytes - offset) as usize;
        let bytes = read_bytes(device, offset, len);
        if bytes.iter().any(|byte| *byte != 0) {
            write_bytes(copy.as_ref(), offset, &bytes);
        }
    }
    copy
}

pub(crate) fn read_page(device: &dyn BlockDevice, page_size: usize, page: u64) -> Vec<u8> {
    read_bytes(device, SUPERBLOCK_BYTES + page * page_size as u64, page_size)
}

/// The newest checkpoint of a store with one member, read as docs/design/checkpoints.md describes
/// it.
pub(crate) struct Checkpoint {
    pub(crate) closed: bool,
    /// The pages of the image's description.
    pub(crate) description: std::ops::Range<u64>,
    /// All pages of the checkpoint's own except its records: the description, and the pages kept
    /// for the next one.
    pub(crate) own: Vec<u64>,
    /// Pages in use, including the checkpoint's own.
    pub(crate) used: Vec<u64>,
}

pub(crate) fn checkpoint_of(device: &dyn BlockDevice, page_size: usize) -> Checkpoint {
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let half = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let record = (0..2)
        .map(|page| read_page(device, page_size, page))
        .max_by_key(|record| word(record, 88))
        .unwrap();
    assert_eq!(record[4], 4, "a checkpoint record");
    let (first, pages, bytes) = (word(&record, 104), word(&record, 112), word(&record, 120));
    let mut image = Vec::new();
    for page in first..first + pages {
        image.extend_from_slice(&read_page(device, page_size, page)[64..]);
    }
    image.truncate(bytes as usize);
    let (roots, logs) = (half(&image, 0), half(&image, 4));
    let mut at = 8 + roots as usize * 12;
    for _ in 0..logs {
        at += 4 + half(&image, at) as usize;
    }
    let words = word(&image, at) as usize;
    let used = (0..words as u64 * 64)
        .filter(|page| word(&image, at + 8 + (page / 64) as usize * 8) >> (page % 64) & 1 == 1)
        .collect();
    let per_page = page_size as u64 - 64;
    assert!(bytes.div_ceil(per_page) <= pages, "the description is in its run");
    Checkpoint {
        closed: word(&record, 80) >> 32 & 1 == 1,
        description: first..first + bytes.div_ceil(per_page),
        own: (first..first + pages)
            .chain(word(&record, 144)..word(&record, 144) + word(&record, 152))
            .collect(),
        used,
    }
}

/// Checks the store on these members. It must be closed and sound, without lost pages.
pub(crate) fn assert_sound(
    members: &[Arc<dyn BlockDevice>],
    page_size: usize,
) -> qpair_engine::CheckReport {
    let store = Store::open(members.to_vec(), &reading(page_size, 128)).unwrap();
    let report = store.check(&|_, _| ()).unwrap();
    assert!(report.is_sound(), "{:#?}", report.faults);
    assert_eq!((report.leaked_pages, report.unreached_pages), (0, 0), "{report:#?}");
    assert!(report.harmless.is_empty(), "{report:#?}");
    report
}

/// Returns the CRC-32C of bytes, computed bit by bit.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
        crc
    })
}
