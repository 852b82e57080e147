//! The block layer: the interface between the code that stores data and the code that drives
//! devices.
//!
//! - [`BlockDevice`]: the control plane of a device, usable from any thread.
//! - [`IoChannel`]: the data plane, one for each worker and device; never blocks, never allocates
//!   per request.
//! - [`Request`] and [`Completion`]: a request goes down once and comes back once, together with
//!   its [`Buffer`].
//! - [`RamDevice`], [`NullDevice`], [`DelayDevice`], [`FaultDevice`] and [`StripeDevice`]: software
//!   devices.
//! - [`Carving`]: named slices of a device, with a map on the device itself.
//! - [`DeviceSpec`]: the text form of device names.
//! - [`time`]: the clock of drivers and soft devices.
//!
//! This crate depends neither on the engine above nor on the kernel below. Each of its folders
//! imports only those before it: `seam`, `channel`, `devices`, `spec`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod channel;
mod devices;
mod seam;
mod spec;
pub mod time;

pub use channel::content::{find_content, find_content_anywhere};
pub use channel::group::ChannelGroup;
pub use channel::poller::PollSet;
pub use channel::reconnection::Reconnection;
pub use channel::serial::SerialChannel;
pub use channel::slots::Slots;
pub use channel::unflushed_writes::UnflushedWrites;
pub use devices::carve::{
    CARVED_FROM_BYTES, CarveMap, CarveSlot, Carving, SLICES_MAX, Slice, examine_carving,
};
pub use devices::delay::{DelayDevice, DelayOptions};
pub use devices::fault::{FaultDevice, FaultOptions};
pub use devices::fault_control::{FaultControl, FaultCounts};
pub use devices::limit::{LimitClock, LimitDevice, Limits};
pub use devices::null::{NullDevice, NullOptions};
pub use devices::pair::{PAIR_SECOND_BYTES, open_pair};
pub use devices::ram::{RamDevice, RamOptions};
pub use devices::slice::SliceDevice;
pub use devices::stripe::{Member, StripeDevice};
pub use qpair_memory::locks;
pub use qpair_memory::{
    Arena, ArenaOptions, Backing, BlockIndex, Buffer, Mapping, Piece, Segment, TickClock,
};
pub use seam::byte_locks::ByteLocks;
pub use seam::completion_event::CompletionEvent;
pub use seam::device::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, DeviceInfo, Extent, IoChannel,
    WaitOptions,
};
pub use seam::error::{Error, ErrorKind, IoError, Result};
pub use seam::request::{Completion, Op, Request};
pub use seam::size::{format_bytes, parse_bytes};
pub use seam::sleep::{WaitClock, sleep};
pub use seam::wake::WakeEvent;
pub use spec::{DRIVERS, DeviceSpec, KINDS, Kind, Opener, SharedWay, keys, open_slice};
