//! The hash functions.

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

/// A hash function of DH-HMAC-CHAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// Returns the identifier in messages and keys.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.number() == number)
    }

    /// Returns the name by which SPDK's client and nvme-cli call the function.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    #[must_use]
    pub fn len_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    pub(crate) fn digest(self, data: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(data).to_vec(),
            Self::Sha384 => Sha384::digest(data).to_vec(),
            Self::Sha512 => Sha512::digest(data).to_vec(),
        })
    }

    /// Returns the HMAC of all parts, one after the other.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, parts),
            Self::Sha384 => mac::<Hmac<Sha384>>(key, parts),
            Self::Sha512 => mac::<Hmac<Sha512>>(key, parts),
        }
    }

    /// Returns the first `len` bytes of HKDF-Expand-Label (RFC 8446 §7.1) over HKDF-Extract without
    /// a salt; `None` for a context or label that is too long.
    pub(crate) fn expand_label(
        self,
        key: &[u8],
        label: &str,
        context: &[u8],
        len: u8,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let label = format!("tls13 {label}");
        let mut info = u16::from(len).to_be_bytes().to_vec();
        info.push(u8::try_from(label.len()).ok()?);
        info.extend(label.as_bytes());
        info.push(u8::try_from(context.len()).ok()?);
        info.extend(context);
        let extracted = self.hmac(&vec![0; self.len_bytes()], &[key]);
        let (mut all, mut last) = (Zeroizing::new(Vec::new()), Zeroizing::new(Vec::new()));
        for count in 1..=u8::MAX {
            last = self.hmac(&extracted, &[&last, &info, &[count]]);
            all.extend(&*last);
            if all.len() >= len.into() {
                break;
            }
        }
        all.truncate(len.into());
        Some(all)
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    // HMAC takes keys of any length.
    let Ok(mut mac) = <M as Mac>::new_from_slice(key) else { return Zeroizing::default() };
    parts.iter().for_each(|part| mac.update(part));
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}
