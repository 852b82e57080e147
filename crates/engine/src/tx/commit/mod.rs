//! Committing a transaction: preparing its leaves, its timestamp, the record in the log, and the
//! changes in the trees.

mod committing;
mod fetching;
mod prepare;
mod reach;
mod recent;
mod single;
mod undo;

pub(crate) use committing::{Committing, commit, nothing_to_do, wait_durable};
pub(crate) use reach::Reach;
pub(super) use recent::Recent;
pub(crate) use single::{Inline, delete, put, put_inline};
