//! What a disk says, and what it is told: sense data, vital product data, mode pages, lists,
//! command descriptor blocks. Reading never panics, and what was read is written so that it is read
//! the same.
#![no_main]

use qpair_scsi_wire::capacity::Capacity;
use qpair_scsi_wire::inquiry::Inquiry;
use qpair_scsi_wire::vpd::{BlockLimits, Characteristics, Provisioning};
use qpair_scsi_wire::{Command, Sense, Width, luns, mode, operations, timestamp, unmap, vpd};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(sense) = Sense::decode(bytes) {
        let (data, len) = sense.encode_descriptors();
        assert_eq!(Sense::decode(&data[..len]), Some(sense));
        if sense.information.is_none_or(|it| it <= u32::MAX.into()) {
            assert_eq!(Sense::decode(&sense.encode_fixed()), Some(sense));
        }
        assert!(sense.to_string().starts_with(sense.key.name()));
    }
    if let Some(limits) = BlockLimits::decode(bytes) {
        assert_eq!(BlockLimits::decode(&limits.encode()), Some(limits));
    }
    if let Some(it) = Characteristics::decode(bytes) {
        assert_eq!(Characteristics::decode(&it.encode()), Some(it));
    }
    if let Some(it) = Provisioning::decode(bytes) {
        assert_eq!(Provisioning::decode(&it.encode()), Some(it));
    }
    let named: usize = vpd::designators(bytes).map(|it| 4 + it.bytes.len()).sum();
    assert!(named <= bytes.len());
    if let Some(name) = vpd::unit_name(bytes) {
        assert!(name.to_string().len() >= 4 + 16);
    }
    if let Some(serial) = vpd::decode_serial(bytes) {
        let page = vpd::encode(vpd::page::UNIT_SERIAL_NUMBER, serial.as_bytes());
        assert_eq!(vpd::decode_serial(&page), Some(serial));
    }
    assert!(vpd::decode_supported(bytes).is_none_or(|pages| pages.len() <= bytes.len()));
    if let Some(inquiry) = Inquiry::decode(bytes) {
        assert_eq!(Inquiry::decode(&inquiry.encode()), Some(inquiry));
    }
    if let Some(capacity) = Capacity::decode16(bytes) {
        let _ = Capacity::decode16(&capacity.encode16());
    }
    let _ = Capacity::decode10(bytes);
    for width in [Width::Six, Width::Ten] {
        if let Some(head) = mode::Head::decode(bytes, width) {
            let pages = bytes.get(head.pages_at..).unwrap_or(&[]);
            assert!(
                mode::pages(pages).map(|(_, _, page)| page.len()).sum::<usize>() <= pages.len()
            );
            let _ = mode::decode_caching(pages);
        }
    }
    let units: Vec<luns::Lun> = luns::decode(bytes).collect();
    assert_eq!(luns::decode(&luns::encode(&units)).collect::<Vec<_>>(), units);
    for lun in units {
        if let Some(number) = lun.number() {
            assert_eq!(luns::Lun::of(number).and_then(luns::Lun::number), Some(number));
        }
    }
    let _ = (operations::decode_one(bytes), operations::decode_all(bytes).count());
    if let Some(timestamp) = timestamp::Timestamp::decode(bytes) {
        assert_eq!(timestamp::Timestamp::decode(&timestamp.encode()), Some(timestamp));
    }
    if let Some(ms) = timestamp::decode_set(bytes) {
        assert_eq!(timestamp::decode_set(&timestamp::encode_set(ms)), Some(ms));
    }
    if let Some(ranges) = unmap::decode(bytes) {
        assert!(ranges.len() * 16 <= bytes.len());
    }
    if let Ok(command) = Command::decode(bytes) {
        assert_eq!(Command::decode(command.encode().bytes()), Ok(command));
    }
});
