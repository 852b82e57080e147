//! The target from outside: its faces, its methods, its configuration. `hostile` and `idle` count
//! what a process has, and have one each.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod config;
mod narrow;
mod nvmf;
mod rig;
mod rpc;
mod scsi;
mod vhost_user;
