//! The bytes of NVMe: registers, submission and completion entries, Identify data. The driver and
//! the soft controller share these definitions; their behaviour is their own.
//!
//! Sources: NVM Express Base Specification 2.0 ("Base"), NVM Command Set Specification 1.0 ("NVM"),
//! PCIe Transport 1.0 ("PCIe"). All integers are little-endian. Nothing here trusts a value:
//! parsing cannot fail, and the code that reads a field checks it.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod ana;
pub mod command;
pub mod completion;
pub mod fabrics;
pub mod identify;
pub mod registers;
pub mod status;

pub use command::{Command, Range};
pub use completion::Completion;
pub use identify::{IdentifyController, IdentifyNamespace, LbaFormat};
pub use status::Status;

/// Size of a memory page as this project sets it up (CC.MPS = 0), bytes.
pub const PAGE_BYTES: usize = 4096;
/// Size of a submission queue entry, bytes (Base §3.3.3).
pub const SUBMISSION_BYTES: usize = 64;
/// Size of a completion queue entry, bytes.
pub const COMPLETION_BYTES: usize = 16;
/// Size of identify data, bytes.
pub const IDENTIFY_BYTES: usize = 4096;
/// The namespace id that stands for all namespaces.
pub const NSID_ALL: u32 = 0xFFFF_FFFF;
