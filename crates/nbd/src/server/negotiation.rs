//! The negotiation: the client asks for exports and features until it chooses an export.
//!
//! Invariants:
//! - a negotiation keeps at most one option, of at most [`OPTION_BYTES_MAX`] bytes; longer options
//!   are refused and skipped;
//! - where TLS is required, nothing that came before it has an effect after it: only
//!   NBD_OPT_STARTTLS and NBD_OPT_ABORT are carried out in the open, and bytes behind
//!   NBD_OPT_STARTTLS are not taken.

use std::fmt;

use qpair_wire::be;

use crate::wire::handshake::{
    BlockSizes, NO_ZEROES, OPTION, OPTION_BYTES, answer, info, option, put_answer, put_greeting,
    put_text, take, take_text, take_u16, take_u32,
};
use crate::wire::{BASE_ALLOCATION, BASE_ALLOCATION_ID, Style};

/// The largest option. The longest that has a use names an export and a few contexts.
const OPTION_BYTES_MAX: u32 = 16 << 10;
/// The bytes of answers after which no further option is taken in one call.
const ANSWERS_BYTES_MAX: usize = 64 << 10;
/// The length of the zeroes behind the answer to NBD_OPT_EXPORT_NAME.
const ZEROES: usize = 124;

/// An export as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub size_bytes: u64,
    /// The flags of [`export_flag`](crate::wire::export_flag) that do not depend on the connection.
    pub flags: u16,
    pub blocks: BlockSizes,
    pub description: String,
}

/// The exports of a server.
pub trait Exports {
    /// Returns the names of all exports.
    fn names(&self) -> Vec<String>;

    /// Returns an export and its number. The empty name is that of the default export.
    fn find(&self, name: &str) -> Option<(usize, Export)>;
}

/// The export and the features that a client has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The number of the export.
    pub export: usize,
    pub style: Style,
    /// Whether the client may ask for the block status (`base:allocation`).
    pub has_status: bool,
}

/// How far a negotiation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client has more to say.
    Continues,
    /// The transmission begins.
    Settled(Settled),
    /// The client begins the handshake of TLS after it has read the answers. The negotiation
    /// continues inside TLS, and takes no bytes until [`Negotiation::tls_begins`]. A client whose
    /// next bytes are there already sent them before the answer: it is to be disconnected.
    StartsTls,
    /// The client has ended the negotiation.
    Ended,
}

/// The state of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tls {
    /// The server has none.
    #[default]
    Absent,
    /// The client must start it.
    Required,
    /// The client has asked for it, and its next bytes are inside.
    Starting,
    Active,
}

/// The reason for which a client is disconnected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub &'static str);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A negotiation with one client.
#[derive(Debug, Default)]
pub struct Negotiation {
    /// The bytes of the current message.
    input: Vec<u8>,
    /// The bytes of a refused option that are still to come.
    skip: u32,
    has_flags: bool,
    no_zeroes: bool,
    structured: bool,
    extended: bool,
    /// The export for which `base:allocation` was set.
    status_of: Option<usize>,
    tls: Tls,
}

impl Negotiation {
    /// Begins with the server's greeting.
    #[must_use]
    pub fn begin(output: &mut Vec<u8>) -> Self {
        put_greeting(output);
        Self::default()
    }

    /// Begins as [`Negotiation::begin`] does, with a client that must start TLS.
    #[must_use]
    pub fn begin_with_tls(output: &mut Vec<u8>) -> Self {
        put_greeting(output);
        Self { tls: Tls::Required, ..Self::default() }
    }

    /// Notes that the next bytes come from inside TLS.
    pub fn tls_begins(&mut self) {
        if self.tls == Tls::Starting {
            self.tls = Tls::Active;
        }
    }

    /// Whether the client has asked for TLS, and [`Negotiation::tls_begins`] was not called.
    #[must_use]
    pub fn starts_tls(&self) -> bool {
        self.tls == Tls::Starting
    }

    /// Takes bytes of the client and appends the answers to `output`. Stops after the message that
    /// ends the negotiation or starts TLS, and when `output` has 64 KiB. Removes the bytes that it
    /// has taken from `bytes`.
    ///
    /// # Errors
    /// A fault, after which the client is disconnected.
    pub fn take(
        &mut self,
        bytes: &mut &[u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Result<Step, Fault> {
        while output.len() < ANSWERS_BYTES_MAX && !self.starts_tls() {
            let skipped = bytes.len().min(self.skip as usize);
            *bytes = &bytes[skipped..];
            self.skip -= skipped as u32;
            let needs = self.needs()?;
            let has = (needs - self.input.len()).min(bytes.len());
            self.input.extend(&bytes[..has]);
            *bytes = &bytes[has..];
            if self.skip > 0 || self.input.len() < needs {
                return Ok(Step::Continues);
            }
            if !self.has_flags {
                self.take_flags()?;
            } else if self.input.len() > OPTION_BYTES || be::u32_at(&self.input, 12) == 0 {
                let input = std::mem::take(&mut self.input);
                let number = be::u32_at(&input, 8);
                let step = self.option(number, &input[OPTION_BYTES..], exports, output)?;
                self.input = input;
                self.input.clear();
                if step != Step::Continues {
                    return Ok(step);
                }
            } else if be::u32_at(&self.input, 12) > OPTION_BYTES_MAX {
                let number = be::u32_at(&self.input, 8);
                if number == option::EXPORT_NAME {
                    return Err(Fault("the client sent a name that is too long"));
                }
                // Also where TLS is required: the answer tells nothing of exports.
                put_answer(output, number, answer::TOO_BIG, b"the option is too long");
                self.skip = be::u32_at(&self.input, 12);
                self.input.clear();
            }
        }
        Ok(Step::Continues)
    }

    /// Returns how many bytes the current message needs, as far as that is known.
    fn needs(&self) -> Result<usize, Fault> {
        if !self.has_flags {
            return Ok(4);
        }
        if self.input.len() < OPTION_BYTES {
            return Ok(OPTION_BYTES);
        }
        if be::u64_at(&self.input, 0) != OPTION {
            return Err(Fault("the client sent no option of NBD"));
        }
        match be::u32_at(&self.input, 12) {
            len if len > OPTION_BYTES_MAX => Ok(OPTION_BYTES),
            len => Ok(OPTION_BYTES + len as usize),
        }
    }

    fn take_flags(&mut self) -> Result<(), Fault> {
        let flags = be::u32_at(&self.input, 0);
        if flags & 1 == 0 {
            return Err(Fault("the client does not speak the fixed newstyle protocol"));
        }
        if flags & !3 != 0 {
            return Err(Fault("the client set handshake flags that were not offered"));
        }
        self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
        self.has_flags = true;
        self.input.clear();
        Ok(())
    }

    fn style(&self) -> Style {
        match (self.extended, self.structured) {
            (true, _) => Style::Extended,
            (_, true) => Style::Structured,
            _ => Style::Simple,
        }
    }

    fn settle(&self, export: usize) -> Step {
        let has_status = self.status_of == Some(export) && self.style() != Style::Simple;
        Step::Settled(Settled { export, style: self.style(), has_status })
    }

    fn flags(&self, export: &Export) -> u16 {
        let df = match self.style() {
            Style::Simple => 0,
            _ => crate::wire::export_flag::SEND_DF,
        };
        export.flags | df
    }

    fn option(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Result<Step, Fault> {
        let mut put = |kind, text: &str| put_answer(output, number, kind, text.as_bytes());
        match number {
            option::STARTTLS => match self.tls {
                Tls::Required if data.is_empty() => {
                    // Nothing that was agreed on in the open holds inside TLS.
                    (self.structured, self.extended, self.status_of) = (false, false, None);
                    self.tls = Tls::Starting;
                    put(answer::ACK, "");
                    return Ok(Step::StartsTls);
                }
                Tls::Required => put(answer::INVALID, "the option takes no data"),
                Tls::Absent => put(answer::UNSUPPORTED, "this server has no TLS"),
                Tls::Starting | Tls::Active => put(answer::INVALID, "TLS is in use"),
            },
            option::EXPORT_NAME if self.tls == Tls::Required => {
                return Err(Fault("the client asked for an export without TLS"));
            }
            number if self.tls == Tls::Required && number != option::ABORT => {
                put(answer::TLS_REQUIRED, "this server requires TLS");
            }
            option::EXPORT_NAME => {
                let name = std::str::from_utf8(data).ok();
                let Some((at, export)) = name.and_then(|name| exports.find(name)) else {
                    return Err(Fault("the client asked for an export that does not exist"));
                };
                output.extend(export.size_bytes.to_be_bytes());
                output.extend(self.flags(&export).to_be_bytes());
                if !self.no_zeroes {
                    output.extend([0; ZEROES]);
                }
                return Ok(self.settle(at));
            }
            option::ABORT => {
                put(answer::ACK, "");
                return Ok(Step::Ended);
            }
            option::LIST if data.is_empty() => {
                for name in exports.names() {
                    let mut entry = Vec::new();
                    put_text(&mut entry, &name);
                    put_answer(output, number, answer::SERVER, &entry);
                }
                put_answer(output, number, answer::ACK, &[]);
            }
            option::INFO | option::GO => {
                let Some((name, wanted)) = asked(data) else {
                    put(answer::INVALID, "the option has the wrong length");
                    return Ok(Step::Continues);
                };
                let Some((at, export)) = exports.find(name) else {
                    put(answer::UNKNOWN, "there is no export of this name");
                    return Ok(Step::Continues);
                };
                self.inform(number, name, &export, &wanted, output);
                put_answer(output, number, answer::ACK, &[]);
                if number == option::GO {
                    return Ok(self.settle(at));
                }
            }
            option::STRUCTURED_REPLY if data.is_empty() && self.extended => {
                put(answer::EXTENDED_HEADERS_REQUIRED, "extended headers are in use");
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                put(answer::ACK, "");
            }
            option::EXTENDED_HEADERS if data.is_empty() => {
                self.extended = true;
                put(answer::ACK, "");
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(number, data, exports, output);
            }
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
                put(answer::INVALID, "the option takes no data");
            }
            _ => put(answer::UNSUPPORTED, "the option is not supported"),
        }
        Ok(Step::Continues)
    }

    /// Appends the information about an export.
    fn inform(
        &self,
        number: u32,
        name: &str,
        export: &Export,
        wanted: &[u16],
        output: &mut Vec<u8>,
    ) {
        let mut put = |kind: u16, fields: &[&[u8]]| {
            let mut entry = kind.to_be_bytes().to_vec();
            fields.iter().for_each(|field| entry.extend(*field));
            put_answer(output, number, answer::INFO, &entry);
        };
        let flags = self.flags(export).to_be_bytes();
        put(info::EXPORT, &[&export.size_bytes.to_be_bytes(), &flags]);
        let BlockSizes { min, preferred, max } = export.blocks;
        // Also without being asked: the client may keep to it.
        put(info::BLOCK_SIZE, &[&min.to_be_bytes(), &preferred.to_be_bytes(), &max.to_be_bytes()]);
        if wanted.contains(&info::NAME) {
            put(info::NAME, &[name.as_bytes()]);
        }
        if wanted.contains(&info::DESCRIPTION) {
            put(info::DESCRIPTION, &[export.description.as_bytes()]);
        }
    }

    /// Answers a list of meta contexts.
    fn contexts(&mut self, number: u32, data: &[u8], exports: &dyn Exports, output: &mut Vec<u8>) {
        let is_set = number == option::SET_META_CONTEXT;
        let mut put = |kind, data: &[u8]| put_answer(output, number, kind, data);
        if is_set {
            self.status_of = None;
        }
        if self.style() == Style::Simple {
            return put(answer::INVALID, b"structured replies must be chosen first");
        }
        let Some((name, queries)) = queried(data) else {
            return put(answer::INVALID, b"the option has the wrong length");
        };
        let Some((at, _)) = exports.find(name) else {
            return put(answer::UNKNOWN, b"there is no export of this name");
        };
        let matches = |query: &&str| *query == BASE_ALLOCATION || !is_set && *query == "base:";
        if queries.iter().any(matches) || !is_set && queries.is_empty() {
            let id = if is_set { BASE_ALLOCATION_ID } else { 0 };
            let entry = [&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat();
            put(answer::META_CONTEXT, &entry);
            if is_set {
                self.status_of = Some(at);
            }
        }
        put(answer::ACK, &[]);
    }
}

/// Reads the data of NBD_OPT_INFO and NBD_OPT_GO: a name, and types of information.
fn asked(mut data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let name = take_text(&mut data)?;
    let count = take_u16(&mut data)?;
    let rest = take(&mut data, 2 * usize::from(count))?;
    data.is_empty().then(|| (name, rest.chunks_exact(2).map(|it| be::u16_at(it, 0)).collect()))
}

/// Reads the data of NBD_OPT_SET_META_CONTEXT: a name, and queries.
fn queried(mut data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let name = take_text(&mut data)?;
    let count = take_u32(&mut data)?;
    // Each query takes four bytes, so the count cannot lie.
    let queries = (0..count).map(|_| take_text(&mut data)).collect::<Option<Vec<_>>>()?;
    data.is_empty().then_some((name, queries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::handshake::put_option;

    struct One;

    impl Exports for One {
        fn names(&self) -> Vec<String> {
            vec!["disk".into()]
        }

        fn find(&self, name: &str) -> Option<(usize, Export)> {
            let blocks = BlockSizes { min: 512, preferred: 4096, max: 1 << 25 };
            let export =
                Export { size_bytes: 1 << 20, flags: 1, blocks, description: "a disk".into() };
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
}
