//! Soft devices: models of drives in software, for this process or served over vfio-user.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]
