//! The block layer: the interface between the code that stores data and the code that drives
//! devices.
//!
//! - [`BlockDevice`]: the control plane of a device, usable from any thread.
//! - [`IoChannel`]: the data plane, one for each worker and device; never blocks, never allocates
//!   per request.
//! - [`Request`] and [`Completion`]: a request goes down once and comes up once, together with its
//!   [`Buffer`].
//! - [`RamDevice`], [`NullDevice`], [`DelayDevice`], [`FaultDevice`] and [`StripeDevice`]: devices
//!   made of software.
//! - [`IoThreadDevice`] and [`OneLockDevice`]: alternatives to a channel for each thread, for
//!   comparison.
//! - [`Carving`]: named slices of a device, with a map on the device itself.
//! - [`DeviceSpec`]: the text by which people name devices.
//! - [`time`]: the clock of drivers and soft devices.
//!
//! This crate knows neither the engine above nor the kernel below.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bounces;
mod carve;
mod completion_event;
mod content;
mod delay;
mod device;
mod error;
mod fault;
mod fault_control;
mod group;
mod holding;
mod io_thread;
mod limit;
mod member;
mod null;
mod one_lock;
mod pair;
mod poller;
mod ram;
mod ready;
mod request;
mod serial;
#[doc(hidden)]
pub mod sim;
mod size;
mod sleep;
mod slice;
mod slots;
mod spec;
mod spec_text;
mod stripe;
mod stripe_channel;
pub mod time;
mod wake;

pub use carve::{
    CARVED_FROM_BYTES, CarveMap, CarveSlot, Carving, SLICES_MAX, Slice, examine_carving,
};
pub use completion_event::CompletionEvent;
pub use content::{find_content, find_content_anywhere};
pub use delay::{DelayDevice, DelayOptions};
pub use device::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, DeviceInfo, IoChannel, WaitOptions,
};
pub use error::{Error, ErrorKind, IoError, Result};
pub use fault::{FaultDevice, FaultOptions};
pub use fault_control::{FaultControl, FaultCounts};
pub use group::ChannelGroup;
pub use io_thread::IoThreadDevice;
pub use limit::{LimitClock, LimitDevice, Limits};
pub use null::{NullDevice, NullOptions};
pub use one_lock::OneLockDevice;
pub use pair::{PAIR_SECOND_BYTES, open_pair};
pub use qpair_memory::{Arena, ArenaOptions, Backing, BlockIndex, Buffer, Mapping, Piece, Segment};
pub use ram::{RamDevice, RamOptions};
pub use request::{Completion, Op, Request};
pub use serial::SerialChannel;
pub use size::{format_bytes, parse_bytes};
pub use sleep::{WaitClock, sleep};
pub use slice::SliceDevice;
pub use spec::{DRIVERS, DeviceSpec, KINDS, Opener, SharedWay, open_slice};
pub use stripe::{Member, StripeDevice};
pub use wake::WakeEvent;
