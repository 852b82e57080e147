//! Snapshots that another member of a Raft group sends, and the records of a group's positions.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qpair_openraft::{Records, check_snapshot, try_positions, write_position};

/// The bytes of the header, of a record beside its key and value, and of the end.
const HEADER_LEN: usize = 8;
const RECORD_LEN: usize = 8;
const END_LEN: usize = 12;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(records) = Records::new(bytes) {
        let mut whole = HEADER_LEN + END_LEN;
        let mut count = 0;
        let mut failed = false;
        for record in records {
            match record {
                Ok((key, value)) => {
                    whole += RECORD_LEN + key.len() + value.len();
                    count += 1;
                }
                Err(_) => failed = true,
            }
        }
        assert!(count <= bytes.len() / RECORD_LEN);
        match check_snapshot(bytes) {
            Ok(found) => assert!(!failed && whole == bytes.len() && found == count as u64),
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
