//! Standard output; a closed pipe ends the command quietly.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use super::text::push_hex;
use crate::failure::{Exit, Failure, Result};

/// Buffered standard output, used for all output.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    pub(crate) fn is_terminal() -> bool {
        io::stdout().is_terminal()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if qpair_kernel::standard_output_was_closed() {
            return Err(Failure::new(Exit::Failed, "writing to standard output: it is closed")
                .hint("redirect it, to /dev/null if its output is not needed"));
        }
        self.out.write_all(bytes).map_err(|error| failure(&error))
    }

    pub(crate) fn line(&mut self, line: impl AsRef<[u8]>) -> Result<()> {
        self.write(line.as_ref())?;
        self.write(b"\n")
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(|error| failure(&error))
    }
}

pub(crate) fn say(line: impl AsRef<[u8]>) -> Result<()> {
    print([line])
}

pub(crate) fn print<L: AsRef<[u8]>>(lines: impl IntoIterator<Item = L>) -> Result<()> {
    let mut out = Output::new();
    lines.into_iter().try_for_each(|line| out.line(line))?;
    out.finish()
}

pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = Output::new();
    out.write(bytes)?;
    out.finish()
}

pub(crate) fn print_report<L: AsRef<[u8]>>(
    json: bool,
    report: &impl Serialize,
    lines: impl FnOnce() -> Vec<L>,
) -> Result<()> {
    if json { say(to_json(report)?) } else { print(lines()) }
}

pub(crate) fn aligned(
    width: usize,
    lines: impl IntoIterator<Item = (&'static str, String)>,
) -> Vec<String> {
    lines.into_iter().map(|(name, value)| format!("{name:<width$} {value}")).collect()
}

fn to_json(report: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(report)
        .map_err(|error| Failure::new(Exit::Failed, format!("writing JSON: {error}")))
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::closed_pipe(),
        _ => Failure::io(error, "writing to standard output"),
    }
}

/// Puts bytes into a JSON object: as `name` if they are UTF-8, as `name_hex` if not.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(valid) => object.insert(name.to_owned(), valid.into()),
        Err(_) => object.insert(format!("{name}_hex"), hex(bytes).into()),
    };
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut digits = Vec::with_capacity(2 * bytes.len());
    push_hex(&mut digits, bytes, "");
    String::from_utf8(digits).unwrap_or_default()
}
