//! The output of a command that makes a store, or changes a whole one.

use clap::Args;
use indicatif::ProgressBar;
use serde_json::Value;

use crate::failure::Result;
use crate::show::bar::progress_bar;
use crate::show::output::{print, say};

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Print no progress and no summary
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl ShowArgs {
    pub(crate) fn bar(&self) -> ProgressBar {
        progress_bar(self.quiet)
    }

    /// Prints what was done, for programs or people.
    pub(crate) fn print(&self, object: &Value, lines: impl FnOnce() -> Vec<String>) -> Result<()> {
        match (self.json, self.quiet) {
            (true, _) => say(object.to_string()),
            (false, true) => print::<String>([]),
            (false, false) => print(lines()),
        }
    }
}
