//! I/O memory: where every byte that meets a device lives.
//!
//! - [`Arena`]: one mapping cut into equal blocks, registered once with every channel.
//! - [`Buffer`]: the lease on one block, or on a list of [`Segment`]s of foreign memory. It travels
//!   with a request and comes back with the completion.
//! - [`RacyBytes`]: the one primitive that reads memory while another thread may write it.
//! - [`Latch`]: the optimistic latch with an in-flight state.
//! - [`locks`]: mutexes and read-write locks that do not know poison.
//! - [`Mapping`]: memory of another process, or registers of a device, accessed through
//!   [`SharedBytes`].
//! - [`DmaMemory`]: the memory of a driver that a device model in this process can access.
//! - [`FrameTable`]: an arena whose blocks are guarded by latches: the buffer pool's frames.
//!
//! # Safety argument
//!
//! This crate is one of the few that contain `unsafe`; what is above it forbids it.
//!
//! 1. *Lifetime.* A [`Buffer`] holds an `Arc` of its [`Arena`], so a mapping outlives every lease
//!    on it, and a device that keeps the `Buffer` while a request is in flight keeps the mapping.
//! 2. *One writer.* A block is leased at most once at a time. Block memory is written only by the
//!    holder of its `Buffer` (`&mut`), by a device to which the `Buffer` was handed by value, or,
//!    for blocks of a [`FrameTable`], by the holder of the frame's exclusive latch, which by the
//!    latch's state machine is never alive while the `Buffer` is out of the frame.
//! 3. *Many racing readers.* Readers that hold no latch go through [`RacyBytes`], which reads with
//!    relaxed atomic loads, and writers that such readers can race with store with relaxed atomic
//!    stores; no `&mut [u8]` to block memory is ever formed. Copies, and loads of unaligned words,
//!    are the processor's own instructions where those are known (`racing.rs`). They, and what a
//!    device or the kernel writes, are outside the abstract machine and arrive like the accesses of
//!    another process. Loads of different width may overlap racing stores; the language does not
//!    define the value then, the machines qpair runs on do (some mix of old and new bytes), and
//!    every such value is thrown away when the latch's version has moved.
//! 4. *Plain slices* (`as_slice`) are handed out only by owners that exclude writers: the holder of
//!    a `Buffer` and the holder of an exclusive latch, for as long as they are borrowed.
//! 5. *Memory shared with others* (a [`Mapping`]: another process's memory, a device's registers)
//!    is reached through [`SharedBytes`] alone: no reference to it is ever formed, every access is
//!    an atomic of its width or a copy by the processor's string instruction, and any value may
//!    come out. A list of segments in such memory is changed and read through the one lease on it
//!    (`scatter.rs`).
//! 6. *Addresses for devices.* A device, or a model of one, moves bytes wherever its driver tells
//!    it to. As with a kernel interface that is given addresses, memory stays sound because the
//!    driver tells it only addresses within a `Buffer` that it holds until the device is done, and
//!    within its own queues. [`DmaMemory::of_arena`] is `unsafe` for that reason.
//! 7. *The signal handler* (`guard.rs`) touches atomics and a cell that was set before it was
//!    installed, and makes system calls; it allocates nothing and takes no lock. `errno` is left
//!    alone where the mapping succeeds; where it does not, the process ends.
//! 8. *What the handler replaces.* A fault at an address of a covered range comes from a thread
//!    that is in the midst of an access to that mapping (no other code has addresses in it), so it
//!    is held, and stays mapped until the handler returns; ranges leave the list before their
//!    mapping goes. Entries of other ranges that change meanwhile are passed over or read whole
//!    (`version`). What is mapped instead has the same length, takes loads and stores, and goes
//!    with the mapping. That bytes become zeroes is no more than a process that has the file could
//!    have written.
//!
//! # SIGBUS
//!
//! The first mapping of a file that others can change, by [`Mapping::of_file`] or of a shared
//! [`Arena`], takes over SIGBUS for the process: a mapping whose file was cut short becomes zeroed
//! memory, [`Mapping::is_cut`] says so, and its user ends what it was for. Everything else that
//! raises the signal ends the process as before, or goes to the handler that was there before. A
//! program with a handler of its own installs it before, or hands on what is not its own.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]

mod age;
mod arena;
mod buffer;
mod counting;
mod dma;
pub mod doorbell;
mod frame;
mod guard;
mod latch;
pub mod locks;
mod mapping;
mod racing;
mod racy;
mod scatter;
mod shared;
mod sync;
mod ticks;

pub use arena::{Arena, ArenaOptions, Backing, BlockIndex};
pub use buffer::{Buffer, SharedBlock};
pub use counting::CountingAllocator;
pub use dma::DmaMemory;
pub use frame::{ExclusiveFrame, FrameIndex, FrameTable, OptimisticFrame};
pub use guard::mappings_cut;
pub use latch::{Blocked, Latch, Version};
pub use mapping::Mapping;
pub use racy::{RacyBytes, RacyBytesMut, prefetch_bytes};
pub use scatter::{Piece, Pieces, Segment};
pub use shared::SharedBytes;
pub use ticks::ticks;
