//! Backups of a store while its tasks continue, and the content of the backups after their own
//! power was cut.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use qpair_engine::{ErrorKind, Runtime, Store, StoreOptions};
use qpair_sim_block::SimFaults;

use super::lives::{Cut, Run};
use super::oracle::Backup;
use super::state::Unread;

impl Run {
    pub(super) fn back_up(&mut self, store: &Store) -> Result<(), Cut> {
        if self.scenario.members > 1 {
            // A thread that reads beside the workers would wait for several devices in real time.
            return Ok(());
        }
        let asked = self.notes(|notes| notes.oracle.begins());
        let began = self.now_of_lists();
        let mut target = self.world.another().map_err(Cut::Wrong)?;
        let fails = self.rng.u8(0..4) == 0;
        if fails {
            target.set_faults(SimFaults { write_error: 0.02, ..SimFaults::default() });
        }
        let unit = match self.rng.bool() {
            true => None,
            false => Some(self.scenario.page_size as u64 * self.rng.u64(1..20)),
        };
        let breaks_off = self.rng.u8(0..8) == 0;
        let (rng, broken) = (RefCell::new(self.rng.fork()), Cell::new(false));
        let made = store.backup(target.members(), unit, &|_, _| {
            let mut rng = rng.borrow_mut();
            (0..rng.u32(0..60)).for_each(|_| {
                let _ = store.step();
            });
            match breaks_off && rng.u8(0..8) == 0 {
                true => {
                    broken.set(true);
                    ControlFlow::Break(())
                }
                false => ControlFlow::Continue(()),
            }
        });
        let now = self.notes(|notes| notes.oracle.begins());
        let between = began.zip(self.now_of_lists());
        target.set_faults(SimFaults::default());
        let target_failed = target.errors() > 0;
        // Everything written so far survives.
        target.power.cut();
        target.power_on().map_err(Cut::Wrong)?;
        let clock = self.world.clock.clone();
        let options = StoreOptions {
            runtime: Runtime::Stepped { seed: self.rng.u64(..), clock },
            read_only: self.rng.bool(),
            ..self.scenario.store_options()
        };
        let report = match made {
            Ok(report) => report,
            Err(error) => {
                // A superblock whose write failed may still be on the device, on a copy that is
                // complete.
                let sealed = target_failed && error.to_string().contains("superblock");
                if let Ok(copy) = Store::open(target.members(), &options) {
                    copy.crash();
                    if sealed {
                        return Ok(());
                    }
                    return Err(Cut::Wrong(format!("a backup that failed is a store: {error}")));
                }
                self.say(format!("no backup: {error}"));
                return match error.kind() {
                    ErrorKind::Interrupted if broken.get() => Ok(()),
                    ErrorKind::Io if target_failed => Ok(()),
                    _ => self.errand_failed("a backup", &error),
                };
            }
        };
        let wrong = |what: String| Cut::Wrong(format!("a backup of {}: {what}", report.timestamp));
        let copy = Store::open(target.members(), &options)
            .map_err(|error| wrong(format!("{:?}: {error}", error.kind())))?;
        let found = self.read_all_of(&copy).map_err(|why| match why {
            Unread::Error(error) => wrong(format!("{:?}: {error}", error.kind())),
            Unread::Wrong(what) => wrong(what),
        });
        let read = self.read_lists_of(&copy, between);
        copy.crash();
        let found = found?.values;
        read.map_err(wrong)?;
        self.counts.backups += 1;
        self.say(format!("a backup of {}: {} records", report.timestamp, found.len()));
        let backup = Backup { asked, made: now, timestamp: report.timestamp, found };
        self.notes(|notes| notes.oracle.has_backup(backup));
        Ok(())
    }
}
