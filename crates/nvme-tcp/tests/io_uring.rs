//! The tests of `associations.rs` and `target.rs` with the target's sockets by `io_uring`.

#[path = "associations.rs"]
mod associations;
#[path = "target.rs"]
mod target;
