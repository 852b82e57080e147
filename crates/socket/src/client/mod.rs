//! The common part of clients of disks over streams: a channel, which is a connection and the
//! requests in flight on it. A [`Protocol`] says which bytes these are.

mod channel;
mod jobs;
mod link;
mod protocol;
mod wire;

pub use channel::StreamChannel;
pub use jobs::{Job, Jobs, Setting};
pub use protocol::{Event, Parsed, Protocol};
pub use wire::Wire;
