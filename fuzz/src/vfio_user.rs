//! vfio-user messages: parsing never panics, and what is parsed is written so that it is read the
//! same.
#![no_main]

use qpair_vfio_user::codec::{
    DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, RegionAccess, RegionInfo, SetIrqs, Version,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = Header::parse(bytes) {
        assert_eq!(Header::parse(&header.message(&[])), Some(header));
        let _ = header.payload_bytes();
    }
    if let Some(version) = Version::parse(bytes) {
        assert_eq!(Version::parse(&version.payload()), Some(version));
    }
    if let Some(map) = DmaMap::parse(bytes) {
        assert_eq!(DmaMap::parse(&map.payload()), Some(map));
    }
    if let Some(unmap) = DmaUnmap::parse(bytes) {
        assert_eq!(DmaUnmap::parse(&unmap.payload()), Some(unmap));
    }
    if let Some(info) = DeviceInfo::parse(bytes) {
        assert_eq!(DeviceInfo::parse(&info.payload()), Some(info));
    }
    if let Some(info) = IrqInfo::parse(bytes) {
        assert_eq!(IrqInfo::parse(&info.payload()), Some(info));
    }
    if let Some(set) = SetIrqs::parse(bytes) {
        assert_eq!(SetIrqs::parse(&set.payload()), Some(set));
    }
    if let Some(info) = RegionInfo::parse(bytes) {
        let (payload, whole) = info.payload(u32::MAX);
        assert!(whole);
        assert_eq!(RegionInfo::parse(&payload), Some(info));
    }
    let _ = RegionInfo::parse_request(bytes);
    if let Some((access, data)) = RegionAccess::parse(bytes) {
        assert_eq!(RegionAccess::parse(&access.payload(data)), Some((access, data)));
    }
});
