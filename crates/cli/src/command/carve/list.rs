//! `qpair carve list`.

use clap::Args;
use serde_json::{Value, json};

use super::target::{Target, in_json};
use crate::failure::{Exit, Result};
use crate::show::output::{print, say};
use crate::show::text::size;

/// List the slices and the free space of a device
#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
}

impl List {
    pub(super) fn run(self) -> Result<Exit> {
        let carving = self.target.carving(true)?;
        let (map, device_bytes) = (carving.map(), carving.device().size_bytes());
        let free = map.free(device_bytes);
        if self.target.json {
            let slices: Vec<Value> = map.slices.iter().map(in_json).collect();
            let free: Vec<Value> = free
                .iter()
                .map(|gap| json!({"offset_bytes": gap.start, "size_bytes": gap.end - gap.start}))
                .collect();
            let device = self.target.device.to_string();
            say(json!({"device": device, "size_bytes": device_bytes, "slices": slices, "free": free})
                .to_string())?;
            return Ok(Exit::Done);
        }
        let gaps =
            free.into_iter().map(|gap| (gap.start, gap.end - gap.start, "(free)".to_owned()));
        let slices = map.slices.iter();
        let slices = slices.map(|slice| (slice.start_bytes, slice.size_bytes, slice.name.clone()));
        let mut all: Vec<_> = slices.chain(gaps).collect();
        all.sort_unstable();
        say(format!("{:<20} {:>20} {:>20} {:>12}", "NAME", "OFFSET", "BYTES", "SIZE"))?;
        print(all.into_iter().map(|(start, bytes, name)| {
            format!("{name:<20} {start:>20} {bytes:>20} {:>12}", size(bytes))
        }))?;
        Ok(Exit::Done)
    }
}
