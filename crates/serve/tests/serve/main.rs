//! Tests the target from outside: its protocols, its methods, its configuration. `hostile` and
//! `idle` count resources of a whole process, so each is a program of its own.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod ana;
mod config;
mod narrow;
mod nvmf;
mod rig;
mod rpc;
mod scsi;
mod vhost_user;
