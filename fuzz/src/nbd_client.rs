//! Replies of a server to a client, in the transmission phase.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qpair_nbd::wire::Reply;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((_, len))) = Reply::decode(rest) {
        assert!(len > 0 && len <= rest.len() && len <= 64);
        rest = &rest[len..];
    }
    // 64 bytes are enough for every header.
    assert!(rest.len() < 64 || !matches!(Reply::decode(rest), Ok(None)));
});
