//! Whole stores: a small one with a few bytes changed opens, is checked, read and scanned, or says
//! why not.
//!
//! The first byte of an input says what is made right after the change: bit 0 the checksums of
//! changed pages, bit 1 those of changed superblocks. A store with sealed pages is only checked.
//! Then come changes of five bytes each: where, and the new value.
#![no_main]

#[allow(dead_code, reason = "other targets use the rest")]
mod format;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, RamDevice, RamOptions, Request, WaitOptions,
};
use qpair_engine::{Store, StoreOptions};

const PAGE: usize = 512;
const SUPERBLOCK_BYTES: usize = 64 << 10;
const BLOCK: usize = 64 << 10;

fn options() -> StoreOptions {
    StoreOptions {
        memory_bytes: 64 * PAGE as u64,
        workers: 1,
        page_size: PAGE,
        read_only: true,
        log_segment_bytes: 16 << 10,
        ..StoreOptions::default()
    }
}

fn ram(size_bytes: usize) -> Arc<dyn BlockDevice> {
    let size_bytes = size_bytes as u64;
    Arc::new(RamDevice::new(RamOptions { size_bytes, ..RamOptions::default() }).unwrap())
}

/// Moves a block at a time, to the device or from it.
fn transfer(device: &dyn BlockDevice, bytes: &mut [u8], write: bool) {
    let mut channel =
        device.open_channel(&ChannelOptions { depth: 1, ..ChannelOptions::default() }).unwrap();
    let arena = Arena::new(BLOCK, 1, ArenaOptions::ordinary_pages()).unwrap();
    for (index, block) in bytes.chunks_mut(BLOCK).enumerate() {
        let mut buffer = arena.lease().unwrap();
        let (offset, len) = ((index * BLOCK) as u64, block.len() as u32);
        let request = if write {
            buffer.copy_from(0, block);
            Request::write(offset, len, buffer, 0)
        } else {
            Request::read(offset, len, buffer, 0)
        };
        channel.submit(request).unwrap();
        let mut completions = Vec::new();
        let wait = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
        channel.wait(&mut completions, wait);
        let completion = completions.pop().unwrap();
        completion.result.unwrap();
        if !write {
            block.copy_from_slice(&completion.buffer.unwrap().as_slice()[..block.len()]);
        }
    }
}

/// A small store with every kind of page: superblocks, then pages.
fn template() -> &'static [u8] {
    static TEMPLATE: OnceLock<Vec<u8>> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let device = ram(1 << 20);
        let new = StoreOptions { format: true, read_only: false, ..options() };
        let store = Store::open(vec![device.clone()], &new).unwrap();
        let table = store.table("t").unwrap();
        for i in 0..300u32 {
            let len = if i % 100 == 50 { 1200 } else { 20 };
            table.put(format!("key {i:03}").as_bytes(), &vec![i as u8; len]).unwrap();
        }
        table.delete(b"key 150").unwrap();
        drop(table);
        store.close().unwrap();
        let pages = Store::open(vec![device.clone()], &options()).unwrap().report().pages;
        let mut bytes = vec![0; SUPERBLOCK_BYTES + pages as usize * PAGE];
        transfer(device.as_ref(), &mut bytes, false);
        bytes
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((seal, changes)) = input.split_first() else { return };
    let mut bytes = template().to_vec();
    for change in changes.chunks_exact(5).take(64) {
        let place = u32::from_le_bytes(change[..4].try_into().unwrap()) as usize;
        // Superblocks are mostly zeroes: only what they hold is worth changing.
        let at = match place & 7 {
            0 => (place >> 3) % 160 + if place & 1024 == 0 { 0 } else { 32 << 10 },
            _ => SUPERBLOCK_BYTES + (place >> 3) % (bytes.len() - SUPERBLOCK_BYTES),
        };
        bytes[at] = change[4];
        if at < SUPERBLOCK_BYTES {
            if seal & 2 != 0 {
                let slot = at / (32 << 10) * (32 << 10);
                format::seal_superblock(&mut bytes[slot..slot + 4096]);
            }
        } else if seal & 1 != 0 {
            let page = at / PAGE * PAGE;
            format::seal_page(&mut bytes[page..page + PAGE]);
        }
    }
    let device = ram(bytes.len());
    transfer(device.as_ref(), &mut bytes, true);
    let Ok(store) = Store::open(vec![device], &options()) else { return };
    let _ = store.check(&|_, _| ()).map(|report| report.is_sound());
    // Lookups trust what has the right checksum; only the check looks closer.
    if seal & 1 != 0 {
        return;
    }
    let Ok(Some(table)) = store.existing_table("t") else { return };
    for i in (0..300).step_by(7) {
        let _ = table.get(format!("key {i:03}").as_bytes());
    }
    for reverse in [false, true] {
        if let Ok(range) = table.range(..) {
            let range = if reverse { range.reverse() } else { range };
            let _ = range.take(2000).take_while(Result::is_ok).count();
        }
    }
});
