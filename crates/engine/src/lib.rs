//! The storage engine.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
mod page;
