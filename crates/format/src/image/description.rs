//! The content of a checkpoint beside the trees themselves: their roots, the start positions of the
//! logs, and the pages in use.

use std::collections::BTreeMap;

use crate::bitmap::Bitmap;
use crate::error::{Error, Result};

/// The content of the run of pages that a checkpoint record leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The root page of each tree, by tree id; tree 0 is the catalog.
    pub roots: BTreeMap<u32, u64>,
    /// The position at which a reader of each log must begin, as encoded by the log; empty if the
    /// store was closed.
    pub logs: Vec<Vec<u8>>,
    pub pages: Bitmap,
}

impl Image {
    pub fn encode(&self) -> Vec<u8> {
        let words = self.pages.words_len();
        let mut bytes = Vec::with_capacity(64 + self.roots.len() * 12 + words * 8);
        bytes.extend_from_slice(&(self.roots.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.logs.len() as u32).to_le_bytes());
        for (tree, page_id) in &self.roots {
            bytes.extend_from_slice(&tree.to_le_bytes());
            bytes.extend_from_slice(&page_id.to_le_bytes());
        }
        for log in &self.logs {
            bytes.extend_from_slice(&(log.len() as u32).to_le_bytes());
            bytes.extend_from_slice(log);
        }
        bytes.extend_from_slice(&(words as u64).to_le_bytes());
        self.pages.words().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// Decodes a description.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are not a valid description.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(&mut { bytes })
            .ok_or_else(|| Error::damaged("the checkpoint image cannot be decoded"))
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let roots = half(bytes)?;
        let logs = half(bytes)?;
        let mut image = Self::default();
        for _ in 0..roots {
            let tree = half(bytes)?;
            image.roots.insert(tree, word(bytes)?);
        }
        for _ in 0..logs {
            let len = half(bytes)? as usize;
            image.logs.push(bytes.split_off(..len)?.to_vec());
        }
        let words = usize::try_from(word(bytes)?).ok()?;
        let content = bytes.get(..words.checked_mul(8)?)?;
        let words = content.chunks_exact(8);
        image.pages =
            Bitmap::from_words(words.map(|word| word.try_into().map_or(0, u64::from_le_bytes)));
        Some(image)
    }
}

fn half(bytes: &mut &[u8]) -> Option<u32> {
    bytes.split_off(..4)?.try_into().ok().map(u32::from_le_bytes)
}

fn word(bytes: &mut &[u8]) -> Option<u64> {
    bytes.split_off(..8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_comes_back_and_a_cut_one_does_not() {
        let mut pages = Bitmap::default();
        pages.change(3, 200, true);
        let image =
            Image { roots: BTreeMap::from([(0, 7), (5, 9)]), logs: vec![vec![1, 2, 3]], pages };
        let bytes = image.encode();
        assert_eq!(Image::decode(&bytes).unwrap(), image);
        for len in 0..bytes.len() {
            assert!(Image::decode(&bytes[..len]).is_err(), "{len}");
        }
    }
}
