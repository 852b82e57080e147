//! The vfio-user protocol (libvfio-user, QEMU docs/interop/vfio-user.rst): codec, client, and a server that is polled.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]
