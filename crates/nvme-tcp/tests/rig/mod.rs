//! The target that tests of `associations.rs` and `target.rs` have. `keyed` is the rig of hosts
//! that have keys.

use qpair_serve::{SocketWay, Target, TargetOptions};

/// Makes a target. In the tests of `io_uring.rs`, which are those of other files, its sockets are
/// used by `io_uring`.
#[allow(clippy::print_stderr, reason = "a skip is reported")]
pub(crate) fn target() -> Target {
    let is_ring = module_path!().starts_with("io_uring");
    let sockets = if is_ring { SocketWay::IoUring } else { SocketWay::Epoll };
    let options = TargetOptions { workers: 2, sockets, ..TargetOptions::default() };
    Target::new(options).unwrap_or_else(|error| {
        assert!(is_ring, "{error}");
        eprintln!("skipped, with epoll instead: {error}");
        Target::new(TargetOptions { sockets: SocketWay::Epoll, ..options }).unwrap()
    })
}
