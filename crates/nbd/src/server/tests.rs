//! Negotiations: what clients get, and what is refused.

use qpair_wire::be;

use super::{Export, Exports, Fault, Negotiation, Settled, Step};
use crate::wire::handshake::{BlockSizes, answer, option, put_option, put_text};
use crate::wire::{BASE_ALLOCATION, Style};

struct One;

impl Exports for One {
    fn names(&self) -> Vec<String> {
        vec!["disk".into()]
    }

    fn find(&self, name: &str) -> Option<(usize, Export)> {
        let blocks = BlockSizes { min: 512, preferred: 4096, max: 1 << 25 };
        let export = Export { size_bytes: 1 << 20, flags: 1, blocks, description: "a disk".into() };
        ["", "disk"].contains(&name).then_some((0, export))
    }
}

/// Feeds the bytes in pieces of each size, and returns the end and the answers.
fn feed(bytes: &[u8]) -> (Result<Step, Fault>, Vec<u8>) {
    let mut all = Vec::new();
    for piece in [1, 3, bytes.len()] {
        let mut output = Vec::new();
        let mut negotiation = Negotiation::begin(&mut output);
        let mut end = Ok(Step::Continues);
        for mut part in bytes.chunks(piece) {
            end = negotiation.take(&mut part, &One, &mut output);
            if end != Ok(Step::Continues) {
                break;
            }
        }
        all.push((end, output));
    }
    assert!(all[0] == all[1] && all[1] == all[2]);
    all.swap_remove(0)
}

fn go() -> Vec<u8> {
    let mut data = Vec::new();
    put_text(&mut data, "disk");
    data.extend([0, 1, 0, 3]);
    data
}

#[test]
fn a_client_gets_what_it_asks_for() {
    let mut bytes = vec![0, 0, 0, 3];
    put_option(&mut bytes, option::STRUCTURED_REPLY, &[]);
    let mut context = Vec::new();
    put_text(&mut context, "disk");
    context.extend(1u32.to_be_bytes());
    put_text(&mut context, BASE_ALLOCATION);
    put_option(&mut bytes, option::SET_META_CONTEXT, &context);
    put_option(&mut bytes, option::GO, &go());
    let settled = Settled { export: 0, style: Style::Structured, has_status: true };
    assert_eq!(feed(&bytes).0, Ok(Step::Settled(settled)));
    let mut bytes = vec![0, 0, 0, 3];
    put_option(&mut bytes, option::EXPORT_NAME, b"");
    let settled = Settled { export: 0, style: Style::Simple, has_status: false };
    let (end, output) = feed(&bytes);
    assert_eq!((end, output.len()), (Ok(Step::Settled(settled)), 18 + 10));
}

/// Returns a negotiation that requires TLS and has taken these options, its last step and the
/// types of its answers.
fn open(options: &[(u32, &[u8])]) -> (Negotiation, Result<Step, Fault>, Vec<u32>) {
    let (mut greeting, mut answers) = (Vec::new(), Vec::new());
    let mut negotiation = Negotiation::begin_with_tls(&mut greeting);
    let mut step = negotiation.take(&mut &[0, 0, 0, 3][..], &One, &mut greeting);
    for (number, data) in options {
        let (mut bytes, mut output) = (Vec::new(), Vec::new());
        put_option(&mut bytes, *number, data);
        let mut rest = &bytes[..];
        step = negotiation.take(&mut rest, &One, &mut output);
        if !output.is_empty() {
            answers.push(be::u32_at(&output, 12));
        }
    }
    (negotiation, step, answers)
}

#[test]
fn nothing_but_tls_is_to_be_had_where_it_is_required() {
    let name = go();
    let options: [(u32, &[u8]); 8] = [
        (option::LIST, &[]),
        (option::GO, &name),
        (option::INFO, &name),
        (option::STRUCTURED_REPLY, &[]),
        (option::EXTENDED_HEADERS, &[]),
        (option::SET_META_CONTEXT, &name),
        (option::LIST_META_CONTEXT, &name),
        (77, &[]),
    ];
    let (_, step, answers) = open(&options);
    assert_eq!((step, answers), (Ok(Step::Continues), vec![answer::TLS_REQUIRED; 8]));
    assert!(open(&[(option::EXPORT_NAME, b"disk")]).1.is_err());
    assert_eq!(open(&[(option::ABORT, b"")]).1, Ok(Step::Ended));
    assert_eq!(open(&[(option::STARTTLS, b"x")]).2, [answer::INVALID]);
}

#[test]
fn nothing_from_before_tls_holds_inside() {
    let (mut negotiation, step, answers) =
        open(&[(option::STRUCTURED_REPLY, &[]), (option::STARTTLS, &[])]);
    assert_eq!(step, Ok(Step::StartsTls));
    assert_eq!(answers, [answer::TLS_REQUIRED, answer::ACK]);
    // Bytes in the open behind the option, as an attacker would put them there.
    let mut injected = Vec::new();
    put_option(&mut injected, option::STRUCTURED_REPLY, &[]);
    let (mut rest, mut output) = (&injected[..], Vec::new());
    assert_eq!(negotiation.take(&mut rest, &One, &mut output), Ok(Step::Continues));
    assert_eq!((rest.len(), output.len()), (injected.len(), 0), "nothing was taken");
    assert!(negotiation.starts_tls());
    negotiation.tls_begins();
    let mut bytes = Vec::new();
    put_option(&mut bytes, option::STARTTLS, &[]);
    put_option(&mut bytes, option::GO, &go());
    let mut output = Vec::new();
    let step = negotiation.take(&mut &bytes[..], &One, &mut output);
    let settled = Settled { export: 0, style: Style::Simple, has_status: false };
    assert_eq!(step, Ok(Step::Settled(settled)));
    assert_eq!(be::u32_at(&output, 12), answer::INVALID, "TLS inside TLS");
}

#[test]
fn options_that_are_wrong_are_refused() {
    let refusal = |option_number, data: &[u8]| {
        let mut bytes = vec![0, 0, 0, 1];
        put_option(&mut bytes, option_number, data);
        let (end, output) = feed(&bytes);
        assert_eq!(end, Ok(Step::Continues));
        be::u32_at(&output, 18 + 12)
    };
    assert_eq!(refusal(option::LIST, b"x"), answer::INVALID);
    assert_eq!(refusal(option::GO, b"x"), answer::INVALID);
    assert_eq!(refusal(option::GO, &[0xFF; 12]), answer::INVALID);
    assert_eq!(refusal(option::STARTTLS, &[]), answer::UNSUPPORTED);
    assert_eq!(refusal(option::SET_META_CONTEXT, &go()), answer::INVALID);
    assert_eq!(refusal(77, &[0; 20_000]), answer::TOO_BIG);
    assert_eq!(refusal(option::INFO, &[0, 0, 0, 1, b'x', 0, 0]), answer::UNKNOWN);
    assert!(feed(&[0, 0, 0, 0]).0.is_err(), "not fixed newstyle");
    assert!(feed(&[0; 40]).0.is_err());
    let mut bytes = vec![0, 0, 0, 1];
    put_option(&mut bytes, option::EXPORT_NAME, b"no");
    assert!(feed(&bytes).0.is_err());
}
