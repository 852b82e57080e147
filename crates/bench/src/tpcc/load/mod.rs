//! Loading a store: every table by ascending keys, several tables at once.
//!
//! The record that describes the load is written last, so that an interrupted load can be detected.

mod run;
mod tables;

pub(crate) use run::{LoadFigures, load, loaded, records};
