//! The native methods of `io.qpair.Native`: qpair for Java 17 to 21, where the foreign function
//! API is not final. Each calls a function of the C interface, which checks handles, catches panics
//! and has all that qpair does; here are arrays, buffers, texts and exceptions only.
//!
//! # Why the unsafe code here is sound
//!
//! The Java virtual machine alone calls these functions, for the `native` methods of a class that
//! is not public. The blocks below name the rule that keeps them true:
//!
//! 1. **Environment.** `env` is that of the calling thread, and valid during the call. Nothing here
//!    keeps it. It has the functions of JNI 1.4, which all machines since Java 1.4 have.
//! 2. **Objects.** A reference to an object is null, or valid during the call and of the type that
//!    the Java declaration has. Null is an exception.
//! 3. **Pointers.** No pointer comes from Java. Arrays are copied. The address of a direct buffer
//!    is that of `GetDirectBufferAddress`, with the bounds checked against its capacity; the
//!    argument keeps the buffer and its memory alive. That nobody else writes to that memory during
//!    the call, or frees it by other means, is the rule of the Java methods that take buffers.
//! 4. **Handles** are numbers in the shape of pointers, which the C interface looks up: a wrong one
//!    is an error. What it lends is copied before anything else is called with the handle; the
//!    caller in Java keeps other threads out.
//! 5. **Exceptions.** After a function of JNI has failed, an exception is pending, and only a
//!    return follows (`Failure::Pending`).
//!
//! No panic leaves the crate: each body runs in `call::call`, and C's functions catch their own.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![allow(
    clippy::missing_safety_doc,
    reason = "the rules above are those of all functions, whose only caller is the machine"
)]
#![allow(clippy::too_many_arguments, reason = "a direct buffer is passed as three")]

mod bytes;
mod call;
mod changes;
mod env;
mod range;
mod records;
mod store;

pub use changes::*;
pub use range::*;
pub use records::*;
pub use store::*;
