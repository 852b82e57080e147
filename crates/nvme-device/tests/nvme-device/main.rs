//! A controller as a driver sees it, with backends of a few lines behind it.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod admin;
mod blocks;
mod delegated;
mod host;
mod hostile;
