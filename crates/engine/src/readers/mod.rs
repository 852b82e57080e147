//! Readers in other processes: how a writer and its readers know of one another, and how a reader
//! knows that its checkpoint is still there. See docs/design/readers.md.
//!
//! - A reader announces a checkpoint before it looks whether the checkpoint is granted. A writer
//!   takes a grant away before it looks for the announcements that decide about the pages. So one
//!   of them sees the other.
//! - No byte that a reader's device returned is believed before [`Witness::check`] has said, after
//!   the read, that the checkpoint is still there.

mod kept;
mod marks;
mod records;
mod witness;

pub(crate) use kept::KeptImages;
pub(crate) use marks::Marks;
pub(crate) use records::RecordReader;
pub(crate) use witness::Witness;
