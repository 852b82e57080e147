//! TLS by certificates: rustls.

use std::io::{self, IoSlice, Read, Write};

use rustls::Connection;

use crate::records::{Opened, Records, Stream};

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS failed: {error}"))
}

/// Moves data that is deciphered.
fn take(connection: &mut Connection, into: &mut [u8]) -> io::Result<Opened> {
    let mut opened = Opened::default();
    while opened.filled < into.len() {
        match connection.reader().read(&mut into[opened.filled..]) {
            Ok(0) => {
                opened.is_end = true;
                break;
            }
            Ok(count) => opened.filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(opened)
}

impl Records for Connection {
    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }

    fn open(&mut self, records: &mut &[u8], into: &mut [u8]) -> io::Result<Opened> {
        let mut opened = take(self, into)?;
        while !records.is_empty() {
            if self.read_tls(records)? == 0 {
                opened.is_end = true;
                break;
            }
            self.process_new_packets().map_err(broken)?;
            let more = take(self, &mut into[opened.filled..])?;
            opened.filled += more.filled;
            opened.is_end |= more.is_end;
        }
        Ok(opened)
    }

    fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.writer().write_vectored(pieces)
    }

    fn close(&mut self) {
        self.send_close_notify();
    }

    fn has_output(&self) -> bool {
        self.wants_write()
    }

    fn write_output(&mut self, mut to: &mut dyn Write) -> io::Result<usize> {
        self.write_tls(&mut to)
    }

    fn exchange(&mut self, mut socket: &mut dyn Stream) -> io::Result<()> {
        self.complete_io(&mut socket).map(drop)
    }
}
