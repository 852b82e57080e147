//! Standard output; a closed pipe ends the command quietly.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde_json::{Map, Value};

use crate::failure::{Exit, Failure, Result};
use crate::text;

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
                .hint("redirect it, to /dev/null if nobody needs it"));
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

/// Prints one line and flushes it.
pub(crate) fn say(line: impl AsRef<[u8]>) -> Result<()> {
    let mut out = Output::new();
    out.line(line)?;
    out.finish()
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

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut digits = Vec::with_capacity(2 * bytes.len());
    text::push_hex(&mut digits, bytes, "");
    String::from_utf8(digits).unwrap_or_default()
}
