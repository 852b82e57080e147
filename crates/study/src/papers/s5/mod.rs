//! S5: SPDK and `io_uring` as interchangeable block devices.

pub(super) mod figure3;
pub(super) mod figure5;
pub(super) mod figure6;
pub(super) mod text;
