//! Values too large for a leaf: their descriptors in leaves, and the location of their pages. See
//! docs/design/page-format.md.

mod descriptor;
mod extents;

pub use descriptor::{Descriptor, pages_of, part_bytes, part_len, part_of};
pub use extents::{Extents, ListReader, Listed, decode_list, runs_per_page};
