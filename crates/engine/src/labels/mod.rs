//! Labels: what the devices of a store say of it, and of themselves. See docs/design/page-format.md.

mod log;
mod members;

pub(crate) use log::{Found, LogLabel, MAGIC as LOG_LABEL_MAGIC, is_log_of};
pub(crate) use members::{Generations, erase, join, read, read_all, read_slots, write_all};
