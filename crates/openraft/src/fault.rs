//! Planted bugs, which the checker of histories must find.

/// A bug that a group is opened with. Only the project's own tests plant one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Appends and votes are acknowledged before they are durable.
    EarlyAcknowledgement,
    /// Votes are acknowledged and not written.
    LostVote,
}
