//! The NVMe driver: controllers, their queues, and namespaces as block devices. It has no unsafe code: see `qpair-pci` for access to devices.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]
