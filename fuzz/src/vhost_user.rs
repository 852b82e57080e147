//! vhost-user messages: parsing never panics, and what is parsed is written so that it is read the
//! same.
#![no_main]

use qpair_socket::MessageHeader;
use qpair_vhost_user::codec::{
    Config, HEADER_BYTES, Header, InflightDescription, MemoryRegion, RegionMessage, RingAddresses,
    RingFile, RingState, number, parse_number,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, payload_bytes)) = Header::read(bytes) {
        let again = Header::read(&header.message(&[])).expect("it was one");
        assert_eq!(again, (header, payload_bytes));
        let reply = Header::read(&header.reply(8).message(&[])).expect("a reply").0;
        assert!(reply.is_reply() && !reply.needs_reply());
    }
    for payload in [bytes, bytes.get(HEADER_BYTES..).unwrap_or_default()] {
        if let Some(value) = parse_number(payload) {
            assert_eq!(number(value), payload);
        }
        if let Some(regions) = MemoryRegion::parse_table(payload) {
            assert_eq!(MemoryRegion::parse_table(&MemoryRegion::table(&regions)), Some(regions));
        }
        if let Some(message) = RegionMessage::parse(payload) {
            assert_eq!(RegionMessage::parse(&message.payload()), Some(message));
        }
        if let Some(inflight) = InflightDescription::parse(payload) {
            assert_eq!(InflightDescription::parse(&inflight.payload()), Some(inflight));
        }
        if let Some(state) = RingState::parse(payload) {
            assert_eq!(RingState::parse(&state.payload()), Some(state));
        }
        if let Some(addresses) = RingAddresses::parse(payload) {
            assert_eq!(RingAddresses::parse(&addresses.payload()), Some(addresses));
        }
        if let Some(file) = RingFile::parse(payload) {
            assert_eq!(RingFile::parse(&file.payload()), Some(file));
        }
        if let Some(config) = Config::parse(payload) {
            assert_eq!(Config::parse(&config.payload()), Some(config));
        }
    }
});
