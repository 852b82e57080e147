//! Reads the lists that name the pages of large values.

use std::sync::Arc;

use qpair_format::large::{Descriptor, Extents, ListReader};
use qpair_format::{Error, ErrorKind, Result};

use super::transfer::read_page;
use crate::shared::Shared;

/// Reads the list of a large value's pages. Returns `None` if the list belongs to another value by
/// now.
///
/// # Errors
/// `Corrupt`, or the device's error if a page cannot be read.
pub(crate) async fn extents_of(shared: &Shared, descriptor: Descriptor) -> Result<Option<Extents>> {
    let capacity = shared.space.capacity();
    if let Some(run) = descriptor.run() {
        if run.end <= capacity {
            return Ok(Some(Extents::Run(run)));
        }
    } else if descriptor.page_id < capacity {
        let mut list = ListReader::new(descriptor, capacity);
        while let Some(page_id) = list.next() {
            if !list.take(&Box::pin(read_page(shared, page_id)).await?) {
                return Ok(None);
            }
        }
        return Ok(list.finish());
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!("a large value begins at page {}, past the store's end", descriptor.page_id),
    ))
}

pub(crate) async fn load(shared: Arc<Shared>, descriptor: Descriptor) {
    let read = extents_of(&shared, descriptor).await;
    shared.large.lists.note(descriptor, read);
}
