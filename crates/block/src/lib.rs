//! The block layer: the one seam between what stores data and what drives devices.
//!
//! - [`BlockDevice`]: the control plane of a device, usable from any thread.
//! - [`IoChannel`]: the data plane, one per worker and device; never blocks, never allocates per request.
//! - [`Request`] and [`Completion`]: a request goes down once and comes up once, its [`Buffer`] with it.
//! - Devices made of software live here: [`RamDevice`], [`NullDevice`], [`DelayDevice`], [`FaultDevice`] and
//!   [`StripeDevice`].
//! - [`IoThreadDevice`] and [`OneLockDevice`]: what a channel for each thread is measured against.
//! - [`Carving`]: named slices of a device, by a map on the device itself.
//! - [`DeviceSpec`]: how people name devices.
//! - [`time`]: what drivers and soft devices take for the time.
//!
//! Nothing here knows of an engine above or a kernel below.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

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
