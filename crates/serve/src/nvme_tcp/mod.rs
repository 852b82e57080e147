//! Subsystems for hosts over NVMe/TCP: a portal listens at an address, and each worker has a hall
//! with some of its connections.

mod connection;
mod controller;
mod directory;
mod hall;
mod places;
mod portal;
mod serving;

pub(crate) use directory::Directory;
pub(crate) use portal::Portal;
