//! TLS of a host: its keys, and the handshake on a new connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

use qpair_block::Result;
use qpair_nvme_auth::psk::{InterchangeKey, TlsKey, Version};
use qpair_nvme_auth::{Hash, Names};
use qpair_tls::{Key, KeyHash, PskClient, Session};

use super::device::NvmeTcpOptions;
use crate::address::Place;

/// Reads the key of TLS from its file; `None` without TLS.
///
/// # Errors
/// `Invalid` for a file without a key, and for names that are too long; `Denied` for a file that
/// others may read; `Unsupported` in a build without TLS; the errors of reading.
pub(super) fn read_tls(place: &Place, options: &NvmeTcpOptions) -> Result<Option<PskClient>> {
    if options.tls_psk.is_empty() {
        return Ok(None);
    }
    let key = InterchangeKey::read(Path::new(&options.tls_psk))?;
    let names = Names { host: options.host.clone(), subsystem: place.subsystem.clone() };
    // The target takes the one that it knows. Some know only version 0, for which names can be too
    // long.
    let mut keys = vec![key.derive(&names, Version::V1)?];
    keys.extend(key.derive(&names, Version::V0));
    let keys: Vec<Key> = keys.into_iter().map(of_tls).collect();
    PskClient::new(&keys).map(Some)
}

fn of_tls(key: TlsKey) -> Key {
    let TlsKey { identity, key, hash } = key;
    let hash = if hash == Hash::Sha384 { KeyHash::Sha384 } else { KeyHash::Sha256 };
    Key { identity: identity.into_bytes(), secret: key, hash }
}

/// A socket that blocks, and whose reads must end by a time.
pub(super) struct Timed<'a> {
    pub(super) stream: &'a TcpStream,
    pub(super) until: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Does the handshake.
pub(super) fn start(
    client: &PskClient,
    stream: &TcpStream,
    until: Instant,
) -> io::Result<Box<Session>> {
    let mut session = client.session()?;
    session.handshake(&mut Timed { stream, until })?;
    Ok(Box::new(session))
}
