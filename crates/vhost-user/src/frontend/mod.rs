//! A front end: drives a disk that another process serves by vhost-user-blk, from this process's
//! own memory.
//!
//! - `connection`: one life of the socket: requests and replies.
//! - `link`: the state that survives it: memory and queues, and the thread that connects again.
//! - `device`, `channel`, `queue`: the block layer's device, a channel, and its ring.

mod channel;
mod connection;
mod device;
mod link;
mod queue;
mod region;

pub use device::{VhostUserBlk, VhostUserOptions};
