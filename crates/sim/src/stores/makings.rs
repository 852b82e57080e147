//! The creation of a store is cut several times before its first incarnation. Whatever state that
//! leaves, a store can be created there.

use qpair_engine::{ErrorKind, Runtime, Store, StoreOptions, find_foreign};

use super::lives::Run;

/// Turns the seed of a run into the seed of its creations.
pub(super) const MAKINGS_SEED: u64 = 0x6D61_6B69_6E67_7321;
/// The maximum number of creations that are cut, and of writes and flushes before each cut.
const MAKINGS_MAX: u32 = 4;
const CHANGES_MAX: u64 = 24;

impl Run {
    /// Cuts the creation of a store in one run of four. Runs with disks behind an HBA do not do
    /// this.
    pub(super) fn make_in_vain(&mut self) -> Result<(), String> {
        if self.canary.is_some() || self.world.contents().is_empty() || self.makings.u8(0..4) != 0 {
            return Ok(());
        }
        for _ in 0..self.makings.u32(2..=MAKINGS_MAX) {
            let changes = self.makings.u64(1..=CHANGES_MAX);
            self.world.power.cut_at_change(changes);
            let made = self.make(true);
            let is_cut = self.world.power.is_cut();
            self.say(format!("making a store, cut at change {changes}: {is_cut}, {made:?}"));
            if !is_cut {
                made?;
                self.world.power.cut_at_change(0);
            }
            self.world.power_on()?;
            let foreign = {
                let (members, log) = (self.world.members(), self.world.log_place());
                let log = match &log {
                    qpair_engine::LogPlace::Device(device) => Some(device),
                    _ => None,
                };
                let found = find_foreign(&members, log).map_err(|error| error.to_string())?;
                found.map(|(device, at)| format!("{} has something at {at}", device.info().name))
            };
            if let Some(foreign) = foreign {
                // Creation overwrites anything except a complete store.
                self.formatted = true;
                return self.make(false).map_err(|error| format!("{foreign}, and {error}"));
            }
        }
        Ok(())
    }

    /// Creates a store, or opens the existing one, and leaves it as a crash does.
    fn make(&mut self, format: bool) -> Result<(), String> {
        let clock = self.world.clock.clone();
        let options = StoreOptions {
            format,
            runtime: Runtime::Stepped { seed: self.makings.u64(..), clock },
            log_place: self.world.log_place(),
            ..self.scenario.store_options()
        };
        match Store::open(self.world.members(), &options) {
            Ok(store) => store.crash(),
            // As in the first incarnation: some small devices have no room for a new store.
            Err(error) if error.kind() == ErrorKind::NoSpace && self.scenario.is_small() => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }
}
