//! The keys of TLS for NVMe/TCP (TCP Transport §3.6.1): a key that was given to both ends, and the
//! key and identity of a host and a subsystem that follow from it.

use std::fmt;
use std::path::Path;

use qpair_block::{Error, ErrorKind, Result};
use zeroize::Zeroizing;

use crate::base64;
use crate::hash::Hash;
use crate::secret::{Names, invalid, read_file, with_sum};

/// A key in the form `NVMeTLSkey-1:HH:BASE64:`.
#[derive(Clone, PartialEq, Eq)]
pub struct InterchangeKey {
    /// The function by which the key becomes that of a host; `None`: it is used as it is.
    hash: Option<Hash>,
    key: Zeroizing<Vec<u8>>,
}

/// A key of TLS with the identity by which both ends find it.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsKey {
    pub identity: String,
    pub key: Zeroizing<Vec<u8>>,
    /// The hash function of the cipher suite.
    pub hash: Hash,
}

/// No output has the key.
impl fmt::Debug for InterchangeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InterchangeKey")
    }
}

/// No output has the key.
impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKey").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// The version of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Without a digest of the key. SPDK knows only this one.
    V0,
    /// With a digest of the key, so that several keys of a host can be told apart.
    V1,
}

impl InterchangeKey {
    /// Reads a key.
    ///
    /// # Errors
    /// `Invalid` for another form, an unknown hash function, a length that the function does not
    /// take, and a wrong sum. The error does not have the text.
    pub fn parse(text: &str) -> Result<Self> {
        let fields: Vec<&str> = text.trim().split(':').collect();
        let ["NVMeTLSkey-1", hash, encoded, ""] = fields[..] else {
            return Err(invalid("the key is not of the form NVMeTLSkey-1:HH:BASE64:")
                .hint("nvme gen-tls-key makes one"));
        };
        let hash = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            _ => return Err(invalid("the key names a hash function that is not known")),
        };
        let key = with_sum(encoded)
            .ok_or_else(|| invalid("the key is damaged: its checksum is wrong"))?;
        match hash {
            Some(hash) if hash.len_bytes() != key.len() => {
                Err(invalid("the key has another length than its hash function"))
            }
            None if ![32, 48].contains(&key.len()) => {
                Err(invalid("the key has a length other than 32 and 48 bytes"))
            }
            _ => Ok(Self { hash, key }),
        }
    }

    /// Reads a key from a file.
    ///
    /// # Errors
    /// As [`InterchangeKey::parse`]; `Denied` if others than the file's owner may read it; the
    /// errors of reading.
    pub fn read(path: &Path) -> Result<Self> {
        let key = Self::parse(&read_file(path)?);
        key.map_err(|error| {
            Error::new(error.kind(), format!("{}", path.display())).caused_by(error)
        })
    }

    /// Returns the hash function of the cipher suite that the key is for.
    #[must_use]
    pub fn suite_hash(&self) -> Hash {
        match (self.hash, self.key.len()) {
            (Some(hash), _) => hash,
            (None, 48) => Hash::Sha384,
            (None, _) => Hash::Sha256,
        }
    }

    /// Returns the key of TLS for a host and a subsystem, with its identity.
    ///
    /// # Errors
    /// `Invalid` for names that are too long together for an identity of version 0.
    pub fn derive(&self, names: &Names, version: Version) -> Result<TlsKey> {
        let Names { host, subsystem } = names;
        let hash = self.suite_hash();
        let len = hash.len_bytes() as u8;
        let long = || {
            Error::new(ErrorKind::Invalid, "the names are too long for an identity of version 0")
        };
        let retained = match self.hash {
            None => self.key.clone(),
            Some(hash) => {
                hash.expand_label(&self.key, "HostNQN", host.as_bytes(), len).ok_or_else(long)?
            }
        };
        let number = if hash == Hash::Sha384 { "02" } else { "01" };
        let (identity, context) = match version {
            Version::V0 => {
                let identity = format!("NVMe0R{number} {host} {subsystem}");
                (identity.clone(), identity)
            }
            Version::V1 => {
                let parts: [&[u8]; 4] =
                    [host.as_bytes(), b" ", subsystem.as_bytes(), b" NVMe-over-Fabrics"];
                let digest = base64::encode(&hash.hmac(&retained, &parts));
                let identity = format!("NVMe1R{number} {host} {subsystem} {digest}");
                (identity, format!("{number} {digest}"))
            }
        };
        let key = hash
            .expand_label(&retained, "nvme-tls-psk", context.as_bytes(), len)
            .ok_or_else(long)?;
        Ok(TlsKey { identity, key, hash })
    }

    /// Returns the key of TLS for an identity that a host gives, if it is one of this key for these
    /// names.
    #[must_use]
    pub fn find(&self, names: &Names, identity: &str) -> Option<TlsKey> {
        let version = match identity.get(..5)? {
            "NVMe0" => Version::V0,
            "NVMe1" => Version::V1,
            _ => return None,
        };
        // Most are those of other names, which takes no cryptography to know.
        let is_its = |rest: &str| {
            let rest = rest.strip_prefix(&*names.host).and_then(|it| it.strip_prefix(' '));
            rest.is_some_and(|it| it.starts_with(&*names.subsystem))
        };
        identity.get(9..).filter(|rest| is_its(rest))?;
        self.derive(names, version).ok().filter(|key| key.identity == identity)
    }
}
