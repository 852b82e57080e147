//! Snapshots that another member of a Raft group sends, and the records of a group's positions.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qpair_openraft::{Records, check_snapshot, try_positions, write_position};

/// The bytes of the header, of a record beside its key and value, and of the end.
const HEADER_LEN: usize = 8;
const RECORD_LEN: usize = 8;
const END_LEN: usize = 12;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut records) = Records::new(bytes) {
        let mut whole = HEADER_LEN + END_LEN;
        let failed = loop {
            match records.next_record() {
                Ok(Some((key, value))) => whole += RECORD_LEN + key.len() + value.len(),
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        assert!(records.count() <= (bytes.len() / RECORD_LEN) as u64);
        // After the end, and after an error, there is no record.
        assert!(matches!(records.next_record(), Ok(None)));
        match check_snapshot(bytes) {
            Ok(found) => assert!(!failed && whole == bytes.len() && found == records.count()),
            Err(_) => assert!(failed),
        }
    }
    if let Ok(position) = try_positions(bytes) {
        // A length in the bytes reserves no memory that they do not have.
        assert!(position.1.capacity() <= 2 * bytes.len() + 4096);
        let again = write_position(&position).unwrap_or_default();
        assert!(try_positions(&again).is_ok_and(|read| read == position));
    }
});
