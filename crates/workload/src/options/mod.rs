//! The words of a workload: fio's options, from text to [`crate::Job`]s.
//!
//! - `definition`, `table`: every option, once; help and command line are made from it.
//!   `unsupported`: fio's others.
//! - `name`: from a name to its option. `value`, `arithmetic`, `keyword`: from text to numbers.
//! - `section`: options as they were given, by job. `settle`: from a section to jobs.
//!
//! Invariant: nothing that was given is ignored. An option has the effect that fio's has, or it is
//! an error that names it, or, where fio lets it pass without effect, a note.

mod arithmetic;
mod definition;
mod keyword;
mod name;
mod section;
mod settle;
mod table;
mod unsupported;
mod value;

pub use definition::{Definition, Takes, Topic};
pub use name::{Known, find};
pub(crate) use section::Refused;
pub use section::{GLOBAL, Given, Place, Section, command_line};
pub use settle::{Limits, Plan, settle};
pub use table::OPTIONS;
pub use unsupported::{UNSUPPORTED, Unsupported};
pub use value::seconds;
