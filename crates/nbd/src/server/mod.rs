//! A server's side of the protocol, without sockets: bytes come in, bytes and decisions go out.

mod command;
mod negotiation;
#[cfg(test)]
mod tests;

pub use command::{Checked, Limits, check};
pub use negotiation::{Export, Exports, Fault, Negotiation, Settled, Step};
