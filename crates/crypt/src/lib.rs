//! Encryption at rest: the program's key, the wrapped key of a store, and devices whose blocks are
//! encrypted and authenticated. See docs/design/encryption.md.
//!
//! Invariant: a block that was not written to this place of this device, under this key, is not
//! returned as content.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod channel;
mod cipher;
mod device;
mod key;

pub use key::EncryptionKey;
