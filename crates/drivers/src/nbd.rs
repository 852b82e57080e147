//! Disks that servers export by NBD: `[KEY=VALUE,...:]unix:PATH[/EXPORT]` or
//! `[KEY=VALUE,...:]tcp:HOST[:PORT][/EXPORT]`, behind `nbd:`.

use std::sync::Arc;

use qpair_block::keys::{Key, Keys, key, quoted};
use qpair_block::{BlockDevice, Result};
use qpair_nbd::{NbdDevice, NbdOptions};

/// Splits a name into the options, which hold paths, and the address.
fn split(name: &str) -> (&str, &str) {
    if name.starts_with("unix:") || name.starts_with("tcp:") {
        return ("", name);
    }
    let begins = [":unix:", ":tcp:"].into_iter().filter_map(|word| name.find(word)).min();
    begins.map_or(("", name), |at| (&name[..at], &name[at + 1..]))
}

pub(crate) fn open(name: &str) -> Result<Arc<dyn BlockDevice>> {
    let (options, address) = split(name);
    Ok(Arc::new(NbdDevice::open(address, KEYS.read(options)?)?))
}

const TABLE: &[Key<NbdOptions>] = &[
    key(
        "tls_ca",
        "use TLS, with a server whose certificate is by an authority in this file",
        |o| quoted(&mut o.tls.ca, "a file in PEM"),
    ),
    key("tls_certificate", "this client's certificate, for servers that ask for it", |o| {
        quoted(&mut o.tls.certificate, "a file in PEM")
    }),
    key("tls_key", "the private key of tls_certificate", |o| {
        quoted(&mut o.tls.key, "a file in PEM")
    }),
    key("tls_name", "the name in the server's certificate, if it is not HOST", |o| {
        quoted(&mut o.tls.name, "a host name or address")
    }),
];

/// The keys of the options.
pub(crate) const KEYS: Keys<NbdOptions> = Keys { of: "nbd:", repeats: false, keys: TABLE };

#[cfg(test)]
mod tests {
    use qpair_block::ErrorKind;

    use super::*;

    #[test]
    fn names_are_split() {
        assert_eq!(split("unix:/run/a=b:tcp:x"), ("", "unix:/run/a=b:tcp:x"));
        assert_eq!(split("tcp:h:7/a=b"), ("", "tcp:h:7/a=b"));
        let (options, address) = split("tls_ca=/etc/ca.pem,tls_name=x:tcp:h:7/e");
        assert_eq!(address, "tcp:h:7/e");
        let options = KEYS.read(options).unwrap();
        assert_eq!((options.tls.ca.as_str(), options.tls.name.as_str()), ("/etc/ca.pem", "x"));
        for name in ["tls_name=x:tcp:h:7/e", "tea=1:unix:/a", "tls_ca=/no/such:tcp:h:1"] {
            let kind = open(name).unwrap_err().kind();
            assert!([ErrorKind::Invalid, ErrorKind::NotFound].contains(&kind), "{name}");
        }
    }
}
