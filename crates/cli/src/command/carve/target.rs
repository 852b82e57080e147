//! The device that has slices, and how to reach it.

use std::sync::Arc;

use clap::Args;
use qpair_block::{BlockDevice, Carving, DeviceSpec, Slice};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Result};
use crate::parse::file::FileArgs;

#[derive(Args, Debug)]
pub(super) struct Target {
    /// A file, a block device, or any device specifier
    pub(super) device: DeviceSpec,

    #[command(flatten)]
    files: FileArgs,

    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Target {
    pub(super) fn open(&self, read_only: bool) -> Result<Arc<dyn BlockDevice>> {
        Ok(self.files.open(&self.device, read_only)?)
    }

    pub(super) fn carving(&self, read_only: bool) -> Result<Carving> {
        Carving::open(&self.open(read_only)?)?.ok_or_else(|| {
            Failure::new(Exit::Negative, format!("{} has no map of slices", self.device))
                .hint("qpair carve create makes one, with a first slice")
        })
    }
}

pub(super) fn in_json(slice: &Slice) -> Value {
    let Slice { name, start_bytes, size_bytes, .. } = slice;
    json!({"name": name, "offset_bytes": start_bytes, "size_bytes": size_bytes, "uuid": slice.uuid()})
}
