//! The extension module `qpair._qpair`. The package around it is in `qpair/`, beside this folder.
//!
//! - [`store`], [`table`], [`range`](mod@range), [`transaction`], [`snapshot`]: the classes of a
//!   store, and [`aio`] those for asyncio and trio.
//! - [`handle`]: what a close takes back; [`process`]: forks, and waiting without the interpreter.
//! - [`input`], [`options`], [`errors`], [`load`]: from Python to the engine and back.

mod aio;
mod errors;
mod handle;
mod input;
mod load;
mod options;
mod process;
mod range;
mod snapshot;
mod store;
mod table;
mod transaction;

// All classes are frozen and guard their state by locks of their own, but no build without the
// interpreter's lock was at hand to run the tests with: such a build keeps the lock for this module.
#[pyo3::pymodule(name = "_qpair", gil_used = true)]
mod module {
    #[pymodule_export]
    use crate::aio::{AsyncRange, AsyncTable, Awaitable, Queue};
    #[pymodule_export]
    use crate::handle::close_all;
    #[pymodule_export]
    use crate::process::{after_fork_in_child, wait_for_threads};
    #[pymodule_export]
    use crate::range::Range;
    #[pymodule_export]
    use crate::snapshot::{Batch, Snapshot};
    #[pymodule_export]
    use crate::store::{Store, open};
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::transaction::{Savepoint, Transaction};

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
