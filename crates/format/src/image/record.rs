//! The checkpoint record: a page that names the newest durable image.
//!
//! A record is in two places, pages 0 and 1. A new record is written to one of them, and once it is
//! durable also to the other: a torn record leaves the previous one, whose pages are still there,
//! and a damaged one leaves its second copy.

use crate::page::{HEADER_BYTES, PageKind, field};

const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub store_id: [u8; 16],
    /// A number that is one higher in every record.
    pub sequence: u64,
    /// The timestamp of the image: all commits up to it are in the image, and none after it.
    pub timestamp: u64,
    /// The first page of the run with the image. The run may be longer than the image.
    pub image_page: u64,
    pub image_pages: u64,
    /// The number of bytes of the image in that run.
    pub image_bytes: u64,
    /// The CRC-32C of the image's bytes.
    pub image_checksum: u32,
    /// Whether the store was closed, so that there is no log after this checkpoint.
    pub closed: bool,
    /// The generation of the superblocks when the record was made. A member whose superblock is
    /// older was restored alone.
    pub generation: u64,
    /// The first page of the spare run for the next image, which held the previous image.
    pub spare_page: u64,
    /// The number of pages in the spare run; 0 if there is none.
    pub spare_pages: u64,
}

impl Record {
    /// Returns the first page id after the last page that the record names.
    pub fn end(&self) -> u64 {
        let end = self.image_page.saturating_add(self.image_pages);
        end.max(self.spare_page.saturating_add(self.spare_pages))
    }

    /// Returns the runs of pages that the record names: that of the image, and the spare one.
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

    /// Decodes a record from a page whose checksum and id are right. Returns `None` if the page is
    /// not a record.
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
