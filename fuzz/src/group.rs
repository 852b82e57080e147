//! Groups of records with long keys: bytes that a check accepts are a group that a change keeps.
#![no_main]

use qpair_format::group::{Records, changed, fault, find};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let is_sound = fault(b"head\0", bytes).is_none();
    if let Ok(records) = Records::of(bytes) {
        for (rest, value) in records.map_while(Result::ok) {
            let found = find(bytes, rest);
            assert!(!is_sound || found.is_ok_and(|found| found == Some(value)));
        }
    }
    let put = changed(bytes, &[(b"rest", Some(b"value"))]);
    assert!(!is_sound || put.is_ok_and(|put| find(&put, b"rest").is_ok_and(|v| v.is_some())));
});
