//! Tests of stores opened by name, on files and emulated drives, through the public interface. All
//! are in one binary, because each binary would build the engine again.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod beside;
mod golden;
mod hba;
mod kill;
mod ledger;
mod open;
mod power;
mod publish;
