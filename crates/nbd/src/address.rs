//! Addresses of servers: `unix:PATH` and `tcp:HOST:PORT`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use qpair_block::{Error, ErrorKind};

/// The port that IANA has assigned to NBD.
pub const PORT: u16 = 10809;

/// The address at which a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// The path of a UNIX socket.
    Unix(PathBuf),
    /// A host name or address, and a port. An IPv6 address is in brackets.
    Tcp(String, u16),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            let context = format!("'{text}' is not the address of an NBD server");
            Error::new(ErrorKind::Invalid, context).hint("write unix:PATH or tcp:HOST[:PORT]")
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Self::Unix(path.into())) };
        }
        let place = text.strip_prefix("tcp:").ok_or_else(wrong)?;
        // The colons of an IPv6 address are inside its brackets.
        let end = place.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match place[end..].rfind(':') {
            Some(at) => {
                let (host, port) = place.split_at(end + at);
                (host, port[1..].parse().map_err(|_| wrong())?)
            }
            None => (place, PORT),
        };
        let is_named = !host.is_empty() && (host.starts_with('[') || !host.contains(':'));
        if is_named { Ok(Self::Tcp(host.to_owned(), port)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["unix:/run/a:b.sock", "tcp:localhost:7", "tcp:[::1]:10809"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("tcp:h".parse::<Address>().unwrap(), Address::Tcp("h".into(), PORT));
        assert_eq!("tcp:[::1]".parse::<Address>().unwrap(), Address::Tcp("[::1]".into(), PORT));
        for wrong in ["", "unix:", "tcp:", "tcp::7", "tcp:h:x", "tcp:a:b:7", "/run/a"] {
            assert_eq!(wrong.parse::<Address>().unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
        }
    }
}
