//! The environment of a study.

pub(crate) mod lab;
pub(crate) mod stores;
