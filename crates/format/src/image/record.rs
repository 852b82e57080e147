//! The checkpoint record: one page that says which image is the newest durable one.
//!
//! Two places, pages 0 and 1. A new record goes to one of them, and once it is durable to the other too: a torn record leaves
//! the one before, whose pages are still there, and a damaged one leaves its twin.

use crate::page::{HEADER_BYTES, PageKind, field};

/// Version of the record's layout.
const VERSION: u32 = 1;

/// A checkpoint record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The store that it is of.
    pub store_id: [u8; 16],
    /// One more with every record.
    pub sequence: u64,
    /// All commits up to this timestamp are in the image, none above it.
    pub timestamp: u64,
    /// The run of pages with the image, which may be longer than that, and the image's bytes.
    pub image_page: u64,
    /// Pages of that run.
    pub image_pages: u64,
    /// Bytes of the image in it.
    pub image_bytes: u64,
    /// CRC-32C of the image's bytes.
    pub image_checksum: u32,
    /// The store was closed: there is no log behind this checkpoint.
    pub closed: bool,
    /// Generation of the superblocks when it was made: a member whose superblock is older was restored alone.
    pub generation: u64,
    /// The run that the next image is for: the one of the image before. No pages: there is none.
    pub spare_page: u64,
    /// Pages of that run.
    pub spare_pages: u64,
}

impl Record {
    /// Returns the first page id after the last page that the record names.
    pub fn end(&self) -> u64 {
        let end = self.image_page.saturating_add(self.image_pages);
        end.max(self.spare_page.saturating_add(self.spare_pages))
    }

    /// The runs of pages that it names: the image's, and the one for the next.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let runs = [(self.image_page, self.image_pages), (self.spare_page, self.spare_pages)];
        runs.into_iter().filter(|(_, pages)| *pages > 0)
    }

    /// Encodes the content of the record's page behind the page header.
    pub fn encode(&self) -> Vec<u8> {
        let mut content = self.store_id.to_vec();
        self.words().iter().for_each(|word| content.extend_from_slice(&word.to_le_bytes()));
        content
    }

    fn words(&self) -> [u64; 10] {
        let flags = u64::from(self.closed) << 32 | u64::from(VERSION);
        [
            flags,
            self.sequence,
            self.timestamp,
            self.image_page,
            self.image_pages,
            self.image_bytes,
            u64::from(self.image_checksum),
            self.generation,
            self.spare_page,
            self.spare_pages,
        ]
    }

    /// Reads a record out of a page whose checksum and id are right; nothing if it is something else.
    pub fn decode(page: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let at = HEADER_BYTES + 16 + index * 8;
            page.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
        };
        let flags = word(0)?;
        if page.get(field::KIND) != Some(&(PageKind::CheckpointRecord as u8))
            || flags as u32 != VERSION
        {
            return None;
        }
        let mut store_id = [0; 16];
        store_id.copy_from_slice(page.get(HEADER_BYTES..HEADER_BYTES + 16)?);
        Some(Self {
            store_id,
            sequence: word(1)?,
            timestamp: word(2)?,
            image_page: word(3)?,
            image_pages: word(4)?,
            image_bytes: word(5)?,
            image_checksum: word(6)? as u32,
            generation: word(7)?,
            spare_page: word(8)?,
            spare_pages: word(9)?,
            closed: flags >> 32 & 1 == 1,
        })
    }
}
