//! The tests of `associations.rs` and `target.rs` with the target's sockets by `io_uring`.

#![allow(clippy::duplicate_mod, reason = "both files have the rig, which sees whose it is")]

#[path = "associations.rs"]
mod associations;
#[path = "target.rs"]
mod target;
