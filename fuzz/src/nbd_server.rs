//! The negotiation of a server, and the requests after it, in pieces of any size.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qpair_nbd::server::{Export, Exports, Limits, Negotiation, Step, check};
use qpair_nbd::wire::handshake::BlockSizes;
use qpair_nbd::wire::request::header_bytes;
use qpair_nbd::wire::{Request, Style};

struct Two;

impl Exports for Two {
    fn names(&self) -> Vec<String> {
        vec!["a".into(), "b".into()]
    }

    fn find(&self, name: &str) -> Option<(usize, Export)> {
        let blocks = BlockSizes { min: 512, preferred: 4096, max: 32 << 20 };
        let export = Export { size_bytes: 1 << 30, flags: 1, blocks, description: name.into() };
        let at = ["a", "b"].iter().position(|known| *known == name || name.is_empty())?;
        Some((at, export))
    }
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (piece, bytes) = input;
    let (mut output, mut settled) = (Vec::new(), None);
    // Half of the inputs are for a server that requires TLS.
    let mut negotiation = match piece < 128 {
        true => Negotiation::begin(&mut output),
        false => Negotiation::begin_with_tls(&mut output),
    };
    let piece = piece % 128;
    let mut at = 0;
    while at < bytes.len() && settled.is_none() {
        let end = bytes.len().min(at + usize::from(piece).max(1));
        let mut part = &bytes[at..end];
        match negotiation.take(&mut part, &Two, &mut output) {
            // Nothing is left, unless there were many answers.
            Ok(Step::Continues) => assert!(part.is_empty() || output.len() >= 64 << 10),
            Ok(Step::Settled(it)) => settled = Some(it),
            Ok(Step::StartsTls) => negotiation.tls_begins(),
            Ok(Step::Ended) | Err(_) => return,
        }
        at = end - part.len();
        // The answers to one option come after the limit is checked.
        assert!(output.len() <= 128 << 10);
        output.clear();
    }
    let Some(settled) = settled else { return };
    let is_extended = settled.style == Style::Extended;
    for header in bytes[at..].chunks_exact(header_bytes(is_extended)) {
        let Some(request) = Request::decode(header, is_extended) else { return };
        let limits = Limits {
            size_bytes: 1 << 30,
            block_bytes: 512,
            read_only: false,
            trims: true,
            has_status: settled.has_status,
            chunk_bytes_max: 256 << 10,
        };
        let _ = check(&request, settled.style, &limits);
    }
});
