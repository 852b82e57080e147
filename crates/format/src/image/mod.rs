//! The pages that a checkpoint writes beside the trees: its record, and the description of its
//! image. See docs/design/page-format.md.

mod bytes;
mod description;
mod record;

pub use bytes::{ImageBytes, image_bytes_per_page};
pub use description::Image;
pub use record::Record;

/// The number of pages with the two checkpoint records. These pages are never allocated.
pub const RECORD_PAGES: u64 = 2;
