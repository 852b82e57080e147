//! Files of a mounted directory, used as filebench's personalities use them (`qpair bench files`).
//!
//! - [`Profile`]: what threads do, to how many files of what size: filebench's names and
//!   parameters.
//! - [`FileSet`](set::FileSet): the files, and which of them are there, or in use.
//! - [`run_files`]: makes the files, runs the threads, removes the files.

mod profile;
mod run;
mod set;

pub use profile::{FileOp, Profile, Role};
pub use run::{FilesOptions, FilesReport, OpReport, run_files};
