//! Stores opened by name, on files and drives of software, from the public interface: one binary,
//! since each would build the engine once more.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod hba;
mod kill;
mod ledger;
mod open;
mod power;
mod publish;
