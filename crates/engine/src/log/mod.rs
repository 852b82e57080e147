//! The logs of an open store: what is durable, and which records they still expect. The encoding is
//! in `qpair_format::log`.

mod durability;
mod durable;
mod expected;
mod feed;
mod old_logs;

pub use durability::Durability;
pub(crate) use durable::{Durable, OpenTimestamps};
pub(crate) use expected::ExpectedRecords;
pub use feed::FeedBreak;
pub(crate) use feed::{Feed, u32_at};
pub(crate) use old_logs::OldLogs;
