//! The soft drive: what a driver sees of it, its shapes in time, and what it does with a driver that lies.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod admin;
mod delegated;
mod faults;
mod host;
mod hostile;
mod io;
mod profiles;
mod shaped;
mod shapes;
mod transcript;
