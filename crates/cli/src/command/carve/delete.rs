//! `qpair carve delete`.

use clap::Args;
use serde_json::json;

use super::target::Target;
use crate::failure::{Exit, Result};
use crate::show::output::say;

/// Delete a slice; its bytes stay until they are overwritten
#[derive(Args, Debug)]
pub(crate) struct Delete {
    #[command(flatten)]
    target: Target,

    /// Name of the slice
    name: String,
}

impl Delete {
    pub(super) fn run(self) -> Result<Exit> {
        let mut carving = self.target.carving(false)?;
        carving.delete(&self.name)?;
        if self.target.json {
            say(json!({"deleted": self.name}).to_string())?;
        }
        Ok(Exit::Done)
    }
}
