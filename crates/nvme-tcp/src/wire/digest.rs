//! Digests of headers and of data: CRC-32C.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// Returns the digest of bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

/// A digest of bytes that come in pieces.
#[derive(Clone, Debug)]
pub struct Digest(crc_fast::Digest);

impl Default for Digest {
    fn default() -> Self {
        Self(crc_fast::Digest::new(Crc32Iscsi))
    }
}

impl Digest {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    #[must_use]
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        let mut digest = Digest::default();
        digest.update(&[0; 7]);
        digest.update(&[0; 25]);
        assert_eq!(digest.finish(), 0x8A91_36AA);
    }
}
