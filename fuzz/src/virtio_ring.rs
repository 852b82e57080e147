//! A ring whose driver is hostile, and which changes while it is read: the device's side ends every
//! walk, names no address past the end of all, nothing that is read after what is written, and
//! gives back no more than it took.

#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use qpair_memory::Mapping;
use qpair_virtio::ring::{Area, Areas, DESCRIPTOR_BYTES, Descriptor, DeviceRing, Layout, walk};

mod input;

use input::Input;

const MEMORY_BYTES: usize = 16 << 10;
/// Where the driver's tables are, as addresses and in memory.
const TABLE_AT: usize = 8 << 10;

fuzz_target!(|data: &[u8]| {
    static MEMORY: OnceLock<Arc<Mapping>> = OnceLock::new();
    let memory = MEMORY.get_or_init(|| Mapping::new_file(MEMORY_BYTES).expect("memory").0);
    let bytes = memory.bytes();
    bytes.zero(0, MEMORY_BYTES);
    let mut input = Input::new(data);
    let Some(layout) = Layout::new(1 << (input.byte() % 9)) else { return };
    // Places that a guest may choose.
    let shift = usize::from(input.byte() % 4);
    let areas = Areas {
        descriptors: Area::new(bytes, 0),
        available: Area::new(bytes, 0x1800 + 2 * shift),
        used: Area::new(bytes, 0x1400 + 4 * shift),
    };
    let mut ring = DeviceRing::new(layout);
    let mut taken = 0u32;
    while !input.is_over() {
        let index = input.half() % layout.size();
        match input.byte() % 6 {
            0 | 1 => {
                let table = if input.byte() & 1 == 0 {
                    areas.descriptors
                } else {
                    Area::new(bytes, TABLE_AT)
                };
                let address = match input.byte() % 4 {
                    0 => TABLE_AT as u64 + DESCRIPTOR_BYTES as u64 * u64::from(input.byte() % 8),
                    1 => u64::MAX - u64::from(input.half()),
                    _ => input.word(),
                };
                let len = u32::from(input.half());
                let next = u16::from(input.byte());
                let flags = u16::from(input.byte() % 8);
                Descriptor { address, len, flags, next }.store(table, index);
            }
            2 => bytes.store_u16(areas.available.at + 4 + 2 * usize::from(index), input.half()),
            3 => bytes.store_u16(areas.available.at + 2, input.half()),
            4 => {
                let index = bytes.load_u16(areas.available.at + 2);
                bytes.store_u16(areas.available.at + 2, index.wrapping_add(1));
            }
            _ => {
                let Ok(Some(head)) = ring.take(areas) else { continue };
                assert!(head < layout.size());
                taken += 1;
                let mut segments = Vec::new();
                let read = |address: u64, into: &mut [u8]| {
                    let end = address.saturating_add(into.len() as u64);
                    let is_open = address >= TABLE_AT as u64 && end <= MEMORY_BYTES as u64;
                    if is_open {
                        bytes.copy_to(address as usize, into);
                    }
                    is_open
                };
                if walk(layout, areas.descriptors, head, read, &mut segments).is_ok() {
                    assert!(
                        !segments.is_empty() && segments.len() <= 1024 + usize::from(layout.size())
                    );
                    assert!(segments.is_sorted_by_key(|segment| segment.is_written));
                    let past = |it: &qpair_virtio::ring::Segment| {
                        it.address.checked_add(it.len.into()).is_none()
                    };
                    assert!(!segments.iter().any(past));
                }
                ring.give(areas, head, input.half().into());
                ring.publish(areas);
                assert_eq!(bytes.load_u16(areas.used.at + 2), taken as u16);
            }
        }
    }
});
