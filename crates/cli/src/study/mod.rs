//! The environment of a study.

pub(crate) mod files;
pub(crate) mod lab;
pub(crate) mod outside;
mod peers;
pub(crate) mod place;
mod stores;
