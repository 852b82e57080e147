//! The bytes of an image's description, in the pages of its run.

use super::Record;
use crate::error::{Error, Result};
use crate::page::{HEADER_BYTES, PageKind, field};

/// Returns the number of bytes of an image in one page.
pub fn image_bytes_per_page(page_size: usize) -> usize {
    page_size - HEADER_BYTES
}

/// An image that is being assembled from its pages.
pub struct ImageBytes {
    record: Record,
    pages: u64,
    bytes: Vec<u8>,
}

impl ImageBytes {
    /// Begins the image that a record leads to, in a store with room for `capacity` pages.
    pub fn new(record: &Record, page_size: usize, capacity: u64) -> Result<Self> {
        let per_page = image_bytes_per_page(page_size) as u64;
        let end = record.image_page.checked_add(record.image_pages);
        if record.image_bytes > record.image_pages.saturating_mul(per_page)
            || end.is_none_or(|end| end > capacity)
        {
            return Err(damaged_image("lies past the store's end"));
        }
        // The run may be longer than the image.
        let pages = record.image_bytes.div_ceil(per_page);
        Ok(Self { record: *record, pages, bytes: Vec::new() })
    }

    pub fn pages(&self) -> std::ops::Range<u64> {
        self.record.image_page..self.record.image_page + self.pages
    }

    /// Takes the next page. Its checksum and id must have been checked.
    pub fn take(&mut self, page_id: u64, page: &[u8]) -> Result<()> {
        if page[field::KIND] != PageKind::CheckpointImage as u8 {
            return Err(damaged_image(&format!("is not in page {page_id}")));
        }
        self.bytes.extend_from_slice(&page[HEADER_BYTES..]);
        Ok(())
    }

    /// Returns the image, once all pages were taken.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.bytes.truncate(self.record.image_bytes as usize);
        if crc_fast::crc32_iscsi(&self.bytes) != self.record.image_checksum {
            return Err(damaged_image("does not match the checksum in its record"));
        }
        Ok(self.bytes)
    }
}

fn damaged_image(what: &str) -> Error {
    Error::damaged(format!("the checkpoint image {what}"))
}
