//! Files and block devices through the kernel's interfaces.
//!
//! - [`FileOptions`]: a regular file, a whole block device, or an NVMe namespace's character
//!   device, and how to open it.
//! - [`Interface`]: `io_uring`, `libaio`, `posix`, or `auto`, the first of them that works here;
//!   `io_uring_cmd` for NVMe commands. [`Mode`]: an interface and its switches.
//! - [`open`]: opens a [`KernelDevice`]. [`Choice`] says which interface it runs on, and why an
//!   earlier one was passed over; [`Adaptation`], what `auto` does with it while it is open.
//! - [`Growth`]: how a file gets its space when it grows.
//! - [`SocketRing`]: stream sockets by `io_uring`.
//! - [`probe`]: tests which interfaces this machine offers, and why others do not work.
//!
//! The requested mode is the one that runs; otherwise an error says what is missing and how to
//! provide it.
//!
//! # Safety argument
//!
//! The kernel reads and writes memory while a request is in flight, without the compiler's
//! knowledge.
//!
//! 1. *Memory in flight.* A channel owns a request from `submit` until its completion was seen.
//!    `in_flight::InFlight` keeps it in a slot, together with the [`Buffer`](qpair_block::Buffer)
//!    and, through that, the mapping. The kernel gets the address of the buffer, and
//!    `request::verify` checks the length against the buffer first. No other code can write to the
//!    buffer meanwhile. If a transfer is a vector, its pieces belong to the slot, and stay
//!    unchanged until the slot's next transfer (`vectors`). The same holds for the range of an NVMe
//!    discard (`passthrough::encode`).
//! 2. *Drop.* Each channel's `Drop` waits until the kernel has released every slot. If the kernel
//!    refuses to be waited for, the slots are leaked, never freed.
//!    A `SocketRing` keeps a send's bytes and the buffers for received bytes in the same way, and
//!    its `Drop` shuts the sockets down, waits, and leaks what the kernel does not give back
//!    (`sockets`).
//! 3. *One thread.* A channel belongs to the thread that opened it (`IoChannel` is not `Send`), so
//!    each ring has one producer or one consumer here. The other end of the ring is the kernel,
//!    with the acquire and release operations that its interface requires.
//! 4. *Descriptors.* Every descriptor number passed to the kernel is that of an `OwnedFd` in the
//!    same structure, or in an `Arc` that the structure holds.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]

mod adapt;
mod byte_locks;
mod device;
mod file;
mod geometry;
mod holder;
mod in_flight;
mod interface;
mod io_uring;
mod libaio;
mod limits;
mod mode;
mod nowait;
mod pace;
mod passthrough;
mod posix;
mod request;
mod sockets;
mod space;
mod standard_output;
mod vectors;

pub use adapt::adaptation::{Adaptation, AdaptationState, adaptations};
pub use adapt::stored::{check_advice_device, keep_advice};
pub use adapt::way::{Family, Way};
pub use adapt::ways::Ways;
pub use device::{KernelDevice, open};
pub use file::FileOptions;
pub use holder::LockHolder;
pub use interface::{Choice, Interface, probe};
pub use mode::{Mode, Polling, SubmissionThread, TaskRun};
pub use sockets::{Outgoing, Received, SocketEvent, SocketRing};
pub use space::Growth;
pub use standard_output::standard_output_was_closed;
