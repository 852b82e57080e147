//! Arguments of several commands, and their values.

pub(crate) mod key;
pub(crate) mod store;
