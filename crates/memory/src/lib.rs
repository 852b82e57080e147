//! I/O memory: all memory that devices read and write.
//!
//! - [`Arena`]: one mapping cut into equal blocks, registered once with every channel.
//! - [`Buffer`]: the lease on one block, or on a list of [`Segment`]s of foreign memory. It travels
//!   with a request and comes back with the completion.
//! - [`RacyBytes`]: the only way to read memory while another thread may write it.
//! - [`Latch`]: the optimistic latch with an in-flight state.
//! - [`locks`]: mutexes and read-write locks that do not know poison.
//! - [`Mapping`]: memory of another process, or registers of a device, accessed through
//!   [`SharedBytes`].
//! - [`DmaMemory`]: the memory of a driver that a device model in this process can access.
//! - [`FrameTable`]: an arena whose blocks are guarded by latches: the buffer pool's frames.
//!
//! # Safety argument
//!
//! This crate is one of the few that contain `unsafe`. The crates above it forbid it.
//!
//! 1. *Lifetime.* A [`Buffer`] holds an `Arc` of its [`Arena`], so a mapping outlives every lease
//!    on it, and a device that keeps the `Buffer` while a request is in flight keeps the mapping.
//! 2. *One writer.* A block is leased at most once at a time. Block memory is written only by the
//!    holder of its `Buffer` (`&mut`), by a device to which the `Buffer` was handed by value, or,
//!    for blocks of a [`FrameTable`], by the holder of the frame's exclusive latch, which by the
//!    latch's state machine is never alive while the `Buffer` is out of the frame.
//! 3. *Many racing readers.* Readers without a latch use [`RacyBytes`], which reads with relaxed
//!    atomic loads. Writers that such readers can race with use relaxed atomic stores. No `&mut
//!    [u8]` to block memory is ever formed. Copies, and loads of unaligned words, use the
//!    processor's own instructions where those are known (`racing.rs`). These accesses, and the
//!    writes of a device or the kernel, are outside the abstract machine, like the accesses of
//!    another process. Loads of one width may overlap racing stores of another. The language does
//!    not define the value then; the machines that qpair runs on do (a mix of old and new bytes).
//!    Every such value is discarded when the latch's version has changed.
//! 4. *Plain slices* (`as_slice`) are lent only by owners that exclude writers, the holder of a
//!    `Buffer` and the holder of an exclusive latch, and only while these are borrowed.
//! 5. *Memory shared with others* (a [`Mapping`]: another process's memory, a device's registers)
//!    is accessed only through [`SharedBytes`]: no reference to it is ever formed, every access is
//!    an atomic of its width or a copy by the processor's string instruction, and any value may be
//!    read. A list of segments in such memory is changed and read through the one lease on it
//!    (`scatter.rs`).
//! 6. *Addresses for devices.* A device, or a model of one, moves bytes wherever its driver tells
//!    it to. As with a kernel interface that takes addresses, memory stays sound because the driver
//!    gives only two kinds of addresses: those within a `Buffer` that it holds until the device is
//!    done, and those within its own queues. [`DmaMemory::of_arena`] is `unsafe` for that reason.
//! 7. *The signal handler* (`guard.rs`) uses atomics and a cell that was set before the handler was
//!    installed, and makes system calls. It allocates nothing and takes no lock. `errno` is
//!    unchanged if the mapping succeeds; if it fails, the process ends.
//! 8. *The mapping that the handler replaces.* A fault at an address of a covered range comes from
//!    a thread that is accessing that mapping, because no other code has addresses in it. The
//!    mapping is therefore held, and stays mapped until the handler returns. Ranges are removed
//!    from the list before their mapping. Entries of other ranges that change meanwhile are skipped
//!    or read whole (`version`). The new mapping has the same length, accepts loads and stores, and
//!    is unmapped together with the old one. Bytes that become zeroes are no worse than any write
//!    by a process that has the file.
//!
//! # SIGBUS
//!
//! The first mapping of a file that others can change, by [`Mapping::of_file`] or of a shared
//! [`Arena`], takes over SIGBUS for the process. A mapping whose file was truncated becomes zeroed
//! memory, [`Mapping::is_cut`] returns true, and the mapping's user ends its operation. All other
//! faults end the process as before, or go to the previous handler. A program with its own handler
//! must install it before, or pass on signals that are not its own.

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
pub use ticks::{TickClock, ticks};
