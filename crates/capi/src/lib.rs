//! The C interface of qpair. `include/qpair.h` is made from this crate by cbindgen
//! (`crates/capi/header`), README.md says how to use it.
//!
//! # Why the unsafe code here is sound
//!
//! Unsafe blocks do four things only: read what C passes, write what C asks for, call C's
//! functions, and read one page that is never unmapped (`fork`). Handles need no unsafe code: a
//! handle is a number in the shape of a pointer, which is looked up and never dereferenced
//! (`handle`). So a null, closed, forged or foreign handle is an error, and a handle that is
//! closed while another thread is in a call on it is `QPAIR_BUSY`.
//!
//! The header obliges the caller to these rules, and each block names those that keep it true:
//!
//! 1. **Input.** A pointer with a length points to that many readable bytes, which nobody changes
//!    during the call. A text ends with a zero byte. A struct has its `size` set, and is as large.
//! 2. **Output.** A pointer to a result is null, where the function allows it, or points to
//!    writable memory of that type, which no other thread uses during the call.
//! 3. **Functions.** A function pointer is null, where allowed, or a function of that signature
//!    that returns normally: it does not `longjmp` out and throws no exception.
//! 4. **Buffers of requests.** The buffer of an asynchronous read is writable until the completion
//!    was taken or the queue is closed. All other input is copied before the call returns.
//!
//! No panic leaves the crate: each function's body runs in `call::call`, which catches it.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![allow(
    clippy::missing_safety_doc,
    reason = "the rules above are those of all functions; the header has them for its readers"
)]
#![allow(clippy::too_many_arguments, reason = "C passes a key, a value and an error as five")]
#![allow(non_camel_case_types, reason = "types have the names that they have in the header")]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("handles are numbers of 64 bits in the shape of pointers");

mod batch;
mod call;
mod code;
mod completion;
mod device;
mod error;
mod fork;
mod handle;
mod load;
mod options;
mod progress;
mod queue;
mod range;
mod snapshot;
mod store;
mod table;
mod transact;
mod transaction;
mod value;
mod version;

pub use batch::*;
pub use code::*;
pub use completion::*;
pub use device::*;
pub use error::*;
pub use load::*;
pub use options::*;
pub use progress::*;
pub use queue::*;
pub use range::*;
pub use snapshot::*;
pub use store::*;
pub use table::*;
pub use transact::*;
pub use transaction::*;
pub use value::*;
pub use version::*;
