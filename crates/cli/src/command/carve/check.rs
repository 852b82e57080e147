//! `qpair carve check`.

use clap::Args;
use qpair_block::{BlockDevice, CarveMap, CarveSlot, examine_carving};
use serde_json::json;

use super::target::Target;
use crate::failure::{Exit, Failure, Result};
use crate::show::output::{print, say};
use crate::show::text::counted;

/// Check the map of a device: both slots, and that all slices lie on the device
#[derive(Args, Debug)]
#[command(after_help = "\
The exit code is 1 if there is no map or a slot is damaged, even if the other slot is intact. The next change of the \
map repairs a damaged slot.")]
pub(crate) struct Check {
    #[command(flatten)]
    target: Target,
}

fn misplaced(map: &CarveMap, device: &dyn BlockDevice) -> Vec<String> {
    let (end, block) = (device.size_bytes(), u64::from(device.info().logical_block_bytes));
    let wrong = map.slices.iter().filter_map(|slice| {
        let (start, name) = (slice.start_bytes, &slice.name);
        match start + slice.size_bytes {
            its if its > end => Some(format!("{name} ends at {its}, and the device at {end}")),
            its if (start | its) % block != 0 => {
                Some(format!("{name} does not lie on blocks of {block} bytes"))
            }
            _ => None,
        }
    });
    wrong.collect()
}

impl Check {
    pub(super) fn run(self) -> Result<Exit> {
        let device = self.target.open(true)?;
        let slots = examine_carving(device.as_ref())?;
        let about = |slot: &CarveSlot| match slot {
            CarveSlot::Blank => "blank".to_owned(),
            CarveSlot::Foreign => "no map".to_owned(),
            CarveSlot::Damaged(why) => format!("damaged: {why}"),
            CarveSlot::Whole(map) => {
                format!("change {}, {}", map.generation, counted(map.slices.len() as u64, "slice"))
            }
        };
        let maps = slots.iter().filter_map(|slot| match slot {
            CarveSlot::Whole(map) => Some(map),
            _ => None,
        });
        let newest = maps.max_by_key(|map| map.generation);
        // The first change of a map writes one slot only.
        let is_young = newest.is_some_and(|map| map.generation == 1);
        let mut faults = newest.map_or_else(Vec::new, |map| misplaced(map, device.as_ref()));
        for (number, slot) in slots.iter().enumerate() {
            match slot {
                CarveSlot::Whole(_) => {}
                CarveSlot::Blank | CarveSlot::Foreign if is_young || newest.is_none() => {}
                other => faults.push(format!("slot {number}: {}", about(other))),
            }
        }
        let name = self.target.device.to_string();
        if self.target.json {
            let slots = slots.each_ref().map(about);
            let sound = newest.is_some() && faults.is_empty();
            say(json!({"device": name, "sound": sound, "slots": slots, "faults": faults})
                .to_string())?;
        } else {
            let slots = slots.iter().enumerate();
            print(slots.map(|(number, slot)| format!("slot {number}: {}", about(slot))))?;
        }
        if faults.is_empty() {
            return match newest {
                Some(_) => Ok(Exit::Done),
                None => Err(Failure::new(Exit::Negative, format!("{name} has no map of slices"))),
            };
        }
        let failure = Failure::new(Exit::Negative, format!("{name}: {}", faults.join("; ")));
        Err(match newest {
            Some(_) => failure.hint(
                "the newest whole map is in use; the next change writes the other slot again",
            ),
            None => failure,
        })
    }
}
