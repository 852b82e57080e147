//! Tests a controller as a driver sees it, with minimal backends.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod admin;
mod blocks;
mod delegated;
mod host;
mod hostile;
