//! Keys: that of the program, which wraps that of a store, which encrypts the store's data.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_format::page::TAG_BYTES;
use qpair_format::superblock::{KEY_SLOT_BYTES, KeySlot};
use qpair_format::{Error, ErrorKind, Result};
use qpair_members::Encryption;
use zeroize::{Zeroize, Zeroizing};

use crate::cipher::{Cipher, KEY_BYTES, NONCE_BYTES};
use crate::device::EncryptedDevice;

/// Keys and data: AES-256-GCM-SIV. Other values are for later versions.
const ALGORITHM: u32 = 1;
/// The purpose of what a key slot has, beside the number of the algorithm.
const PURPOSE: &[u8; 16] = b"qpair key slot\0\0";
/// The places in a key slot.
const NONCE_AT: usize = 4;
const KEY_AT: usize = NONCE_AT + NONCE_BYTES;
const TAG_AT: usize = KEY_AT + KEY_BYTES;

/// A key of 32 bytes that the program keeps, and with which it opens encrypted stores.
///
/// The key encrypts no data. Each store has a key of its own, which lies in the store's superblocks
/// encrypted with this one. So another key of the program takes a change of the superblocks alone.
/// The bytes are zeroed in memory when the value is dropped.
///
/// ```
/// let key = qpair_crypt::EncryptionKey::from_bytes([7; 32]);
/// assert_eq!(format!("{key:?}"), "EncryptionKey");
/// ```
#[derive(Clone)]
pub struct EncryptionKey {
    bytes: [u8; KEY_BYTES],
    /// Whether the keys of stores come from the thread's generator, so that a simulation can be
    /// repeated.
    simulated: bool,
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey")
    }
}

impl Drop for EncryptionKey {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl EncryptionKey {
    /// Returns the key with these bytes, which must be random. A password is not: derive a key from
    /// it with a function made for that, such as Argon2.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self { bytes, simulated: false }
    }

    /// Returns the key that these 64 hexadecimal digits stand for; `None` if they are something
    /// else.
    #[must_use]
    pub fn from_hex(digits: &str) -> Option<Self> {
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let digit = |of: u8| char::from(of).to_digit(16);
        let mut key = Self::from_bytes([0; KEY_BYTES]);
        for (byte, pair) in key.bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(key)
    }

    /// Reads a key from a file that has its 32 bytes, or 64 hexadecimal digits with or without a
    /// line feed.
    ///
    /// # Errors
    /// `NotFound`, `Denied` or `Io` if the file cannot be read; `Invalid` if it has something else.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |error: std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                _ => ErrorKind::Io,
            };
            Error::new(kind, format!("reading the key file {}: {error}", path.display()))
        };
        let mut bytes = Zeroizing::new(Vec::with_capacity(128));
        let file = File::open(path).map_err(failed)?;
        file.take(128).read_to_end(&mut bytes).map_err(failed)?;
        parse(&bytes).ok_or_else(|| {
            Error::with_hint(
                ErrorKind::Invalid,
                format!("the key file {} does not have a key", path.display()),
                "a key is 32 random bytes, or their 64 hexadecimal digits: `openssl rand -hex 32 > FILE` makes one",
            )
        })
    }

    /// Takes the keys of new stores from the thread's generator. For simulations.
    #[doc(hidden)]
    #[must_use]
    pub fn simulated(mut self) -> Self {
        self.simulated = true;
        self
    }

    /// Wraps a store's key with another key of the program. The store's data stay as they are.
    ///
    /// # Errors
    /// `Denied` if this is not the key that the slot was made with; `Version` if the slot is of a
    /// later version.
    pub fn wrap_again(&self, slot: &KeySlot, new: &Self) -> Result<KeySlot> {
        new.wrap(&*self.unwrap(slot)?)
    }

    fn fill(&self, bytes: &mut [u8]) -> Result<()> {
        if self.simulated {
            fastrand::fill(bytes);
            return Ok(());
        }
        getrandom::fill(bytes).map_err(|error| {
            let what = format!("the system gives no random bytes for a key: {error}");
            Error::new(ErrorKind::Unsupported, what)
        })
    }

    fn wrap(&self, key: &[u8; KEY_BYTES]) -> Result<KeySlot> {
        let mut nonce = [0; NONCE_BYTES];
        self.fill(&mut nonce)?;
        let mut wrapped = *key;
        let tag = Cipher::new(&self.bytes).encrypt_with(&nonce, &beside(), &mut wrapped);
        let mut slot = [0; KEY_SLOT_BYTES];
        slot[..NONCE_AT].copy_from_slice(&ALGORITHM.to_le_bytes());
        slot[NONCE_AT..KEY_AT].copy_from_slice(&nonce);
        slot[KEY_AT..TAG_AT].copy_from_slice(&wrapped);
        slot[TAG_AT..TAG_AT + TAG_BYTES].copy_from_slice(&tag);
        Ok(KeySlot(slot))
    }

    fn unwrap(&self, KeySlot(slot): &KeySlot) -> Result<Zeroizing<[u8; KEY_BYTES]>> {
        let (mut nonce, mut tag) = ([0; NONCE_BYTES], [0; TAG_BYTES]);
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        if slot[..NONCE_AT] != ALGORITHM.to_le_bytes() {
            return Err(Error::with_hint(
                ErrorKind::Version,
                "the store is encrypted in a way that this version of qpair does not know",
                "use a newer version of qpair",
            ));
        }
        nonce.copy_from_slice(&slot[NONCE_AT..KEY_AT]);
        key.copy_from_slice(&slot[KEY_AT..TAG_AT]);
        tag.copy_from_slice(&slot[TAG_AT..TAG_AT + TAG_BYTES]);
        match Cipher::new(&self.bytes).decrypt_with(&nonce, &beside(), &mut *key, &tag) {
            true => Ok(key),
            false => Err(Error::with_hint(
                ErrorKind::Denied,
                "the key given is not the key of the store",
                "give the key with which the store was made, or the one that replaced it",
            )),
        }
    }
}

/// Returns what a slot's tag covers beside the key.
fn beside() -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(PURPOSE);
    bytes[16..].copy_from_slice(&ALGORITHM.to_le_bytes());
    bytes
}

fn parse(bytes: &[u8]) -> Option<EncryptionKey> {
    if let Ok(key) = bytes.try_into() {
        return Some(EncryptionKey::from_bytes(key));
    }
    let digits = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let digits = digits.strip_suffix(b"\r").unwrap_or(digits);
    EncryptionKey::from_hex(std::str::from_utf8(digits).ok()?)
}

impl Encryption for EncryptionKey {
    fn new_slot(&self) -> Result<KeySlot> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        self.fill(&mut *key)?;
        self.wrap(&key)
    }

    fn unlock(
        &self,
        slot: &KeySlot,
        page_size: u32,
        devices: Vec<(u32, Arc<dyn BlockDevice>)>,
    ) -> Result<Vec<Arc<dyn BlockDevice>>> {
        let cipher = Arc::new(Cipher::new(&*self.unwrap(slot)?));
        devices
            .into_iter()
            .map(|(index, device)| {
                let device = EncryptedDevice::new(device, cipher.clone(), index, page_size)?;
                Ok(Arc::new(device) as Arc<dyn BlockDevice>)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_opens_with_its_key_alone() {
        let [key, other] = [1, 2].map(|of| EncryptionKey::from_bytes([of; 32]));
        let slot = key.new_slot().unwrap();
        let data = key.unwrap(&slot).unwrap();
        assert!(slot.0.windows(32).all(|part| part != &data[..]), "the key is in clear");
        assert_eq!(other.unwrap(&slot).unwrap_err().kind(), ErrorKind::Denied);
        for at in 0..TAG_AT + TAG_BYTES {
            let mut changed = slot;
            changed.0[at] ^= 1;
            assert!(key.unwrap(&changed).is_err(), "byte {at}");
        }
        let rotated = key.wrap_again(&slot, &other).unwrap();
        assert_eq!(other.unwrap(&rotated).unwrap(), data);
        assert_eq!(key.unwrap(&rotated).unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(other.wrap_again(&slot, &key).unwrap_err().kind(), ErrorKind::Denied);
        assert_ne!(key.unwrap(&key.new_slot().unwrap()).unwrap(), data, "each store has its own");
    }

    #[test]
    fn a_key_file_has_bytes_or_digits() {
        let digits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1B1C1D1E1F";
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        for text in [digits.to_owned(), format!("{digits}\n"), format!("{digits}\r\n")] {
            assert_eq!(parse(text.as_bytes()).unwrap().bytes, key);
        }
        assert_eq!(parse(&key).unwrap().bytes, key);
        for wrong in ["", "secret", &digits[1..], &format!("{digits}00"), &digits.replace('0', "g")]
        {
            assert!(parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
