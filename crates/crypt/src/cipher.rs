//! Encrypts and decrypts units: pages of a store, and blocks of its log.
//!
//! AES-256-GCM-SIV with the unit's place as the nonce. A place is written many times, and its nonce
//! comes again each time. The algorithm is made for that: two contents of a place are two random
//! strings, and only a content that was there before is recognized.

use aes_gcm_siv::aead::AeadInPlace;
use aes_gcm_siv::aead::generic_array::GenericArray;
use aes_gcm_siv::{Aes256GcmSiv, KeyInit};
use qpair_format::page::TAG_BYTES;

pub(crate) const KEY_BYTES: usize = 32;
pub(crate) const NONCE_BYTES: usize = 12;

/// The place of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The index of the store's member, or [`LOG_DEVICE`](qpair_members::LOG_DEVICE).
    pub(crate) device: u32,
    pub(crate) offset_bytes: u64,
}

impl Place {
    fn nonce(self) -> [u8; NONCE_BYTES] {
        let mut nonce = [0; NONCE_BYTES];
        nonce[..4].copy_from_slice(&self.device.to_le_bytes());
        nonce[4..].copy_from_slice(&self.offset_bytes.to_le_bytes());
        nonce
    }
}

pub(crate) struct Cipher(Aes256GcmSiv);

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}

impl Cipher {
    pub(crate) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(Aes256GcmSiv::new(GenericArray::from_slice(key)))
    }

    /// Encrypts a unit. Its last bytes become the tag.
    pub(crate) fn encrypt(&self, place: Place, unit: &mut [u8]) {
        let (content, tag) = unit.split_at_mut(unit.len() - TAG_BYTES);
        tag.copy_from_slice(&self.encrypt_with(&place.nonce(), &[], content));
    }

    /// Decrypts a unit, and zeroes its tag. Returns whether it was encrypted for this place; if
    /// not, its bytes mean nothing.
    pub(crate) fn decrypt(&self, place: Place, unit: &mut [u8]) -> bool {
        let (content, tag) = unit.split_at_mut(unit.len() - TAG_BYTES);
        let mut sent = [0; TAG_BYTES];
        sent.copy_from_slice(tag);
        tag.fill(0);
        self.decrypt_with(&place.nonce(), &[], content, &sent)
    }

    /// Encrypts `content`, which is shorter than the algorithm's limit of 64 GiB. Returns the tag.
    pub(crate) fn encrypt_with(
        &self,
        nonce: &[u8; NONCE_BYTES],
        beside: &[u8],
        content: &mut [u8],
    ) -> [u8; TAG_BYTES] {
        let nonce = GenericArray::from_slice(nonce);
        let tag = self.0.encrypt_in_place_detached(nonce, beside, content);
        // A content over the limit would be left in clear, and must not be written.
        tag.map_or_else(|_| unreachable!("a unit is shorter than 64 GiB"), Into::into)
    }

    pub(crate) fn decrypt_with(
        &self,
        nonce: &[u8; NONCE_BYTES],
        beside: &[u8],
        content: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        let (nonce, tag) = (GenericArray::from_slice(nonce), GenericArray::from_slice(tag));
        self.0.decrypt_in_place_detached(nonce, beside, content, tag).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Place = Place { device: 1, offset_bytes: 65_536 };

    fn encrypted(key: u8, content: u8) -> Vec<u8> {
        let mut unit = vec![content; 512];
        Cipher::new(&[key; KEY_BYTES]).encrypt(AT, &mut unit);
        unit
    }

    #[test]
    fn a_unit_comes_back_at_its_place_alone() {
        let cipher = Cipher::new(&[7; KEY_BYTES]);
        let sealed = encrypted(7, 9);
        let mut unit = sealed.clone();
        assert!(cipher.decrypt(AT, &mut unit));
        assert_eq!(unit, [vec![9; 512 - TAG_BYTES], vec![0; TAG_BYTES]].concat());
        for place in [Place { device: 2, ..AT }, Place { offset_bytes: 66_048, ..AT }] {
            assert!(!cipher.decrypt(place, &mut sealed.clone()), "{place:?}");
        }
        assert!(!Cipher::new(&[8; KEY_BYTES]).decrypt(AT, &mut sealed.clone()));
        for at in 0..512 {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(!cipher.decrypt(AT, &mut changed), "byte {at}");
        }
    }

    /// A torn write of the same content must leave that content: recovery writes log blocks again.
    #[test]
    fn the_same_content_at_the_same_place_is_the_same_bytes() {
        assert_eq!(encrypted(7, 9), encrypted(7, 9));
        let (one, other) = (encrypted(7, 9), encrypted(7, 8));
        let alike = one.iter().zip(&other).filter(|(one, other)| one == other).count();
        assert!(alike < 16, "{alike} bytes of 512 are alike");
    }

    /// RFC 8452, appendix C.2: the first vector with a plaintext of 16 bytes.
    #[test]
    fn the_algorithm_is_that_of_the_rfc() {
        let mut key = [0; KEY_BYTES];
        key[0] = 1;
        let mut nonce = [0; NONCE_BYTES];
        nonce[0] = 3;
        let mut content = [0; 16];
        content[0] = 1;
        let tag = Cipher::new(&key).encrypt_with(&nonce, &[], &mut content);
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(&content), "85a01b63025ba19b7fd3ddfc033b3e76");
        assert_eq!(hex(&tag), "c9eac6fa700942702e90862383c6c366");
    }

    /// For measuring: `cargo test --release -p qpair-crypt --lib speed -- --ignored --nocapture`.
    #[test]
    #[ignore = "it measures"]
    fn speed() {
        const ROUNDS: u32 = 100_000;
        for bytes in [4096, 16_384] {
            let cipher = Cipher::new(&[7; KEY_BYTES]);
            let mut unit = vec![9; bytes];
            let begun = std::time::Instant::now();
            (0..ROUNDS).for_each(|_| cipher.encrypt(AT, &mut unit));
            let encrypted_us = begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
            let sealed = unit.clone();
            let begun = std::time::Instant::now();
            for _ in 0..ROUNDS {
                unit.copy_from_slice(&sealed);
                assert!(cipher.decrypt(AT, &mut unit));
            }
            let decrypted_us = begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
            println!(
                "{bytes} bytes: {encrypted_us:.2} us to encrypt, {decrypted_us:.2} to decrypt"
            );
        }
    }
}
