//! Keys: `DHHC-1:HH:BASE64:`, as files and `nvme gen-dhchap-key` have them.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crc_fast::{CrcAlgorithm, checksum};
use qpair_block::{Error, ErrorKind, Result};
use qpair_wire::le;
use zeroize::Zeroizing;

use crate::base64;
use crate::hash::Hash;

/// The longest file with a key, bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// A key of a host or a controller.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// The function that makes the key another for each name; `None`: the key is used as it is.
    hash: Option<Hash>,
    key: Zeroizing<Vec<u8>>,
}

/// No output has the key.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Takes the key out of the Base64 text of a key with its sum.
pub(crate) fn with_sum(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = base64::decode(text)?;
    let len = bytes.len().checked_sub(4)?;
    let (key, sum) = bytes.split_at(len);
    let is_right = checksum(CrcAlgorithm::Crc32IsoHdlc, key) == u64::from(le::u32_at(sum, 0));
    bytes.truncate(len);
    is_right.then_some(bytes)
}

/// Reads a file with one key, which nobody but its owner may read.
pub(crate) fn read_file(path: &Path) -> Result<Zeroizing<String>> {
    let failed = |cause| Error::os(cause, format!("{}: reading a key", path.display()));
    let mut file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        let context = format!("{}: others than the owner may read the key", path.display());
        return Err(Error::new(ErrorKind::Denied, context).hint("chmod 600 the file"));
    }
    // With room from the start, no copy of the key is left behind as the text grows.
    let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize));
    (&mut file).take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

pub(crate) fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, what.to_owned())
}

impl Secret {
    /// Reads a key.
    ///
    /// # Errors
    /// `Invalid` for another form, an unknown hash function, a length other than 32, 48 and 64
    /// bytes, and a wrong sum. The error does not have the text.
    pub fn parse(text: &str) -> Result<Self> {
        let fields: Vec<&str> = text.trim().split(':').collect();
        let ["DHHC-1", hash, encoded, ""] = fields[..] else {
            return Err(invalid("the key is not of the form DHHC-1:HH:BASE64:")
                .hint("nvme gen-dhchap-key makes one"));
        };
        let hash = match hash {
            "00" => None,
            "01" | "02" | "03" => Hash::of(hash.as_bytes()[1] - b'0'),
            _ => return Err(invalid("the key names a hash function that is not known")),
        };
        let key = with_sum(encoded)
            .ok_or_else(|| invalid("the key is damaged: its checksum is wrong"))?;
        if ![32, 48, 64].contains(&key.len()) {
            return Err(invalid("the key has a length other than 32, 48 and 64 bytes"));
        }
        Ok(Self { hash, key })
    }

    /// Reads a key from a file.
    ///
    /// # Errors
    /// As [`Secret::parse`]; `Denied` if others than the file's owner may read it; the errors of
    /// reading.
    pub fn read(path: &Path) -> Result<Self> {
        let key = Self::parse(&read_file(path)?);
        key.map_err(|error| {
            Error::new(error.kind(), format!("{}", path.display())).caused_by(error)
        })
    }

    /// Returns the key as its owner of this name uses it.
    pub(crate) fn of(&self, name: &str) -> Zeroizing<Vec<u8>> {
        match self.hash {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[name.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

/// The keys of a host at a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeys {
    /// The key by which the host proves who it is.
    pub host: Secret,
    /// The key by which the controller proves who it is, if the host asks for that.
    pub controller: Option<Secret>,
}

/// The names of both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub host: String,
    pub subsystem: String,
}

/// A challenge to one end.
pub(crate) struct Challenge<'a> {
    pub(crate) hash: Hash,
    pub(crate) value: &'a [u8],
    pub(crate) sequence: u32,
    pub(crate) transaction: u16,
    /// The secret that both ends have by Diffie and Hellman's exchange, if there was one.
    pub(crate) shared: Option<&'a [u8]>,
}

impl Challenge<'_> {
    /// Returns the host's response.
    pub(crate) fn of_host(&self, key: &Secret, names: &Names) -> Zeroizing<Vec<u8>> {
        self.response(&key.of(&names.host), b"HostHost", &names.host, &names.subsystem)
    }

    /// Returns the controller's response.
    pub(crate) fn of_controller(&self, key: &Secret, names: &Names) -> Zeroizing<Vec<u8>> {
        self.response(&key.of(&names.subsystem), b"Controller", &names.subsystem, &names.host)
    }

    fn response(&self, key: &[u8], role: &[u8], own: &str, other: &str) -> Zeroizing<Vec<u8>> {
        let value = match self.shared {
            None => Zeroizing::new(self.value.to_vec()),
            Some(shared) => self.hash.hmac(&self.hash.digest(shared), &[self.value]),
        };
        let (sequence, transaction) = (self.sequence.to_le_bytes(), self.transaction.to_le_bytes());
        let own = own.as_bytes();
        // The zero after the transaction: no TLS follows from this authentication.
        let parts: [&[u8]; 8] =
            [&value, &sequence, &transaction, &[0], role, own, &[0], other.as_bytes()];
        self.hash.hmac(key, &parts)
    }
}
