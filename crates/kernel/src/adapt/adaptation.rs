//! The present ways of a device, for people and monitoring.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use qpair_block::locks::Mutex;

use super::way::{Family, Way};

/// The ways that the channels of a device use, how often they changed, and why. It can be read from
/// any thread.
#[derive(Debug)]
pub struct Adaptation {
    family: &'static Family,
    state: Mutex<AdaptationState>,
}

/// A reading of an [`Adaptation`].
#[derive(Clone, Debug, Default)]
pub struct AdaptationState {
    /// The number of open channels in each way. Empty if no channel is open.
    pub channels: BTreeMap<&'static str, u32>,
    /// The number of changes of all channels since the device was opened, those of trials included.
    pub changes: u64,
    /// The way that the last channel took.
    pub last: &'static str,
    /// The last reason, as a sentence without a full stop.
    pub why: String,
}

/// The open devices of this process whose way may change.
static OPEN: Mutex<Vec<(String, Weak<Adaptation>)>> = Mutex::new(Vec::new());

/// Returns the name and the present ways of each open device of this process whose way may change,
/// for monitoring.
#[must_use]
pub fn adaptations() -> Vec<(String, AdaptationState)> {
    let open = OPEN.lock();
    let states = open.iter().map(|(name, one)| Some((name.clone(), one.upgrade()?.state())));
    states.flatten().collect()
}

impl Adaptation {
    pub(crate) fn new(family: &'static Family, why: String) -> Self {
        let last = (family.name_of)(Way::Interrupts);
        let state = AdaptationState { why, last, ..AdaptationState::default() };
        Self { family, state: Mutex::new(state) }
    }

    /// Lists a device for [`adaptations`].
    pub fn list(self: &Arc<Self>, name: &str) {
        let mut open = OPEN.lock();
        open.retain(|(_, one)| one.strong_count() > 0);
        open.push((name.to_owned(), Arc::downgrade(self)));
    }

    #[must_use]
    pub fn state(&self) -> AdaptationState {
        self.state.lock().clone()
    }

    pub(super) fn opened(&self, way: Way) {
        let (mut state, way) = (self.state.lock(), (self.family.name_of)(way));
        *state.channels.entry(way).or_default() += 1;
        state.last = way;
    }

    pub(super) fn closed(&self, way: Way) {
        self.state.lock().leave((self.family.name_of)(way));
    }

    pub(super) fn changed(&self, from: Way, to: Way, why: &str) {
        let mut state = self.state.lock();
        let (from, to) = ((self.family.name_of)(from), (self.family.name_of)(to));
        if from != to {
            state.changes += 1;
            state.last = to;
            state.leave(from);
            *state.channels.entry(to).or_default() += 1;
        }
        why.clone_into(&mut state.why);
    }
}

impl AdaptationState {
    fn leave(&mut self, way: &'static str) {
        if let Some(count) = self.channels.get_mut(way) {
            *count -= 1;
            if *count == 0 {
                self.channels.remove(way);
            }
        }
    }
}

/// Writes the ways, the changes and the reason: `io_uring+k after 5 changes: ...`.
impl fmt::Display for AdaptationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.channels.len() {
            0 | 1 => f.write_str(self.channels.keys().next().unwrap_or(&self.last))?,
            _ => {
                let ways = self.channels.iter().map(|(way, count)| format!("{count} on {way}"));
                f.write_str(&ways.collect::<Vec<_>>().join(", "))?;
            }
        }
        let plural = if self.changes == 1 { "" } else { "s" };
        write!(f, " after {} change{plural}: {}", self.changes, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::super::way::KERNEL;
    use super::*;

    #[test]
    fn channels_are_counted_by_way() {
        let adaptation = Adaptation::new(&KERNEL, "it is the first".to_owned());
        assert_eq!(adaptation.state().to_string(), "io_uring after 0 changes: it is the first");
        adaptation.opened(Way::Interrupts);
        adaptation.opened(Way::Interrupts);
        adaptation.changed(Way::Interrupts, Way::Libaio, "it is cheaper");
        assert_eq!(
            adaptation.state().to_string(),
            "1 on io_uring, 1 on libaio after 1 change: it is cheaper"
        );
        adaptation.closed(Way::Interrupts);
        adaptation.changed(Way::Libaio, Way::Libaio, "it stays");
        assert_eq!(adaptation.state().to_string(), "libaio after 1 change: it stays");
        adaptation.closed(Way::Libaio);
        assert_eq!(adaptation.state().to_string(), "libaio after 1 change: it stays");
    }
}
