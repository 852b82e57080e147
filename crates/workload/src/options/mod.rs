//! Converts fio's options from text to [`crate::Job`]s.
//!
//! - `definition`, `table`: the only definition of every option, from which the help and the
//!   command line are generated. `unsupported`: fio's other options.
//! - `name`: finds options by name. `value`, `arithmetic`, `keyword`: parse values.
//! - `section`: options as they were given, by job. `settle`: converts sections to jobs.
//!
//! Invariant: no given option is ignored. It has the effect that it has in fio, or it is an error
//! that names the option, or, if fio accepts it without effect, a note.

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
