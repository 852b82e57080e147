//! PDUs of NVMe/TCP at both ends, whole and in pieces: the pieces give the same steps.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qpair_nvme_tcp::wire::{Digests, End, Fault, Pdu, Receiver, Step};

const DATA_BYTES_MAX: u32 = 1000;

/// Returns the PDUs, the data, the ends of data, and the fault that ends them.
fn received(
    mut receiver: Receiver,
    bytes: &[u8],
    piece: usize,
) -> (Vec<Pdu>, Vec<u8>, Vec<bool>, Option<Fault>) {
    let (mut pdus, mut data, mut ends, mut kept) = (vec![], vec![], vec![], vec![]);
    for piece in bytes.chunks(piece) {
        kept.extend(piece);
        let mut rest = &kept[..];
        loop {
            match receiver.next(&mut rest) {
                Ok(Step::Incomplete) => break,
                Ok(Step::Pdu(pdu)) => {
                    if let Pdu::Command(_, len) = pdu {
                        assert!(len <= DATA_BYTES_MAX);
                    }
                    pdus.push(pdu);
                }
                Ok(Step::Data(bytes)) => data.extend(bytes),
                Ok(Step::DataEnd(is_right)) => ends.push(is_right),
                Err(fault) => return (pdus, data, ends, Some(fault)),
            }
        }
        // A header with its digest and padding is the most that waits.
        assert!(rest.len() < 512);
        kept = rest.to_vec();
    }
    (pdus, data, ends, None)
}

fuzz_target!(|bytes: &[u8]| {
    let [first, bytes @ ..] = bytes else { return };
    let end = if first & 1 == 0 { End::Host } else { End::Controller };
    let mut receiver = Receiver::new(end, DATA_BYTES_MAX);
    if first & 2 != 0 {
        receiver.initialize(Digests::of(first >> 2));
    }
    let whole = received(receiver.clone(), bytes, bytes.len().max(1));
    let pieces = received(receiver, bytes, usize::from(first >> 4) + 1);
    assert_eq!(whole, pieces);
});
