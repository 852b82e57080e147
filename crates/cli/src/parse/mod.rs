//! Arguments of several commands, and their values.

pub(crate) mod file;
pub(crate) mod key;
pub(crate) mod number;
pub(crate) mod show;
pub(crate) mod store;
