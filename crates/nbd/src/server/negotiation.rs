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
