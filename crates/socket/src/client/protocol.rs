//! The interface between a channel and its protocol.

use qpair_block::Result;

use super::jobs::Jobs;
use super::wire::Wire;

/// A result of parsing. The error says how the peer broke the protocol.
pub type Parsed<T = ()> = std::result::Result<T, &'static str>;

/// A change of a channel's connection.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The connection was lost, and why.
    Lost(&'a str),
    /// Writes may be lost with it, so flushes fail from now on.
    LostWrites,
    /// The peer was given up, and why.
    Gone(&'a str),
    /// The connection was made again.
    Back,
}

/// A protocol of requests and replies, on one connection at a time.
pub trait Protocol: Sized {
    /// The state of a request, beside what a [`Job`](super::Job) has.
    type State: Default;
    /// The result of the negotiation on a connection.
    type Terms: Send + 'static;

    /// The names of the protocol, and of the end that this client connects to, for messages.
    const NAME: &'static str;
    const PEER: &'static str;
    /// Whether a peer that breaks the protocol is given up. Otherwise the channel connects again.
    const IS_STRICT: bool;

    /// Logs an event, in the crate of the protocol: users set the level of a crate.
    fn report(device: &str, event: Event<'_>);

    fn size_bytes(&self) -> u64;

    /// Whether a wait looks at the socket all the time and does not sleep.
    fn polls(&self) -> bool {
        false
    }

    /// Returns a function that connects and negotiates. It may block.
    fn connector(&self) -> impl FnMut() -> Result<(Wire, Self::Terms)> + Send + 'static;

    /// Accepts the terms of a connection that was made again, or says why the peer is given up.
    fn renew(&mut self, terms: Self::Terms) -> Parsed;

    /// Forgets the state of a connection that is lost.
    fn forget(&mut self);

    /// Appends the message of a job to the output. On a new connection the job begins anew.
    fn begin(&mut self, jobs: &mut Jobs<Self::State>, slot: usize);

    /// Takes whole messages, with their data, and returns how many bytes these have.
    ///
    /// # Errors
    /// A text for a peer that breaks the protocol.
    fn parse(&mut self, jobs: &mut Jobs<Self::State>, bytes: &[u8]) -> Parsed<usize>;

    /// Appends the message that ends a connection. Returns whether the protocol has one.
    fn leave(&self, _output: &mut Vec<u8>) -> bool {
        false
    }
}
