//! Addresses of targets, and names of namespaces at them: `HOST:PORT/NQN[/nsN]`.

use std::fmt;
use std::str::FromStr;

use qpair_block::{Error, ErrorKind};

/// The port that IANA has assigned to NVMe over TCP.
pub const PORT: u16 = 4420;

/// A host name or address, and a port. An IPv6 address is in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

impl FromStr for HostPort {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            let context = format!("'{text}' is not the address of an NVMe/TCP target");
            Error::new(ErrorKind::Invalid, context).hint("write HOST:PORT or [IPV6]:PORT")
        };
        // The colons of an IPv6 address are inside its brackets.
        let end = text.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match text[end..].rfind(':') {
            Some(at) => {
                let (host, port) = text.split_at(end + at);
                (host, port[1..].parse().map_err(|_| wrong())?)
            }
            None => (text, PORT),
        };
        let is_named = !host.is_empty() && (host.starts_with('[') || !host.contains(':'));
        if is_named { Ok(Self { host: host.to_owned(), port }) } else { Err(wrong()) }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A namespace of a subsystem at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub address: HostPort,
    pub subsystem: String,
    /// The number of the namespace; `None`: the only one.
    pub nsid: Option<u32>,
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            let context = format!("'{text}' is not a namespace of an NVMe/TCP target");
            Error::new(ErrorKind::Invalid, context).hint("write HOST:PORT/NQN or HOST:PORT/NQN/nsN")
        };
        let (address, rest) = text.split_once('/').ok_or_else(wrong)?;
        let number = |(nqn, last): (&str, &str)| {
            Some((nqn.to_owned(), last.strip_prefix("ns")?.parse::<u32>().ok()?))
        };
        let (subsystem, nsid) = match rest.rsplit_once('/').and_then(number) {
            Some((nqn, nsid)) => (nqn, Some(nsid)),
            None => (rest.to_owned(), None),
        };
        let is_named = (1..=qpair_nvme_wire::fabrics::NQN_BYTES_MAX).contains(&subsystem.len());
        if !is_named || nsid == Some(0) {
            return Err(wrong());
        }
        Ok(Self { address: address.parse()?, subsystem, nsid })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.subsystem)?;
        self.nsid.map_or(Ok(()), |nsid| write!(f, "/ns{nsid}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written() {
        for text in ["h:7/nqn.2026-11.example:a", "[::1]:4420/nqn.a:b/c", "h:4420/nqn.a:b/ns7"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        let place: Place = "10.0.0.1/nqn.a:b/ns2".parse().unwrap();
        assert_eq!((place.address.port, place.nsid), (PORT, Some(2)));
        for wrong in ["", "h:7", "h:7/", ":7/nqn", "h:x/nqn", "a:b:7/nqn", "h:7/nqn/ns0"] {
            assert_eq!(wrong.parse::<Place>().unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
        }
    }
}
