//! Disks for clients over NBD: a server listens at an address, and each worker has a hall with some
//! of its clients.

mod client;
mod exports;
mod hall;
mod server;
mod serving;

pub use exports::NbdExport;
pub(crate) use server::Server;
pub use serving::NbdServerInfo;
