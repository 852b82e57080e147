//! Files of a mounted directory, used as filebench's personalities use them (`qpair bench files`).
//!
//! - [`Profile`]: the operations of threads, and the number and size of files, with filebench's
//!   names and parameters.
//! - [`FileSet`](set::FileSet): the files, and the sets of those that exist or are in use.
//! - [`run_files`]: creates the files, runs the threads, removes the files.

mod profile;
mod run;
mod set;

pub use profile::{FileOp, Profile, Role};
pub use run::{FilesOptions, FilesReport, OpReport, run_files};
