//! The operations of writers, and the states of a store that they permit.
//!
//! Each writer has its own keys, and requests one operation after the other. The writer's keys in a
//! store are therefore in the state after some number of its operations. The marks before the loss
//! of power determine which numbers are permitted.

use std::collections::BTreeMap;

use super::recorder::Mark;

/// A table and a key in it. The first two characters of the key name the writer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) table: String,
    pub(super) key: String,
}

/// A written value. Its bytes follow from these fields and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// A number that differs for each operation of a run.
    pub(super) stamp: u64,
    pub(super) len: usize,
}

impl Value {
    /// Returns the value's bytes: letters and digits, so that the command can load them as text.
    pub(super) fn bytes(self, key: &str) -> Vec<u8> {
        let mut text = format!("{:x}/{key}/", self.stamp).into_bytes();
        let mut rng = fastrand::Rng::with_seed(self.stamp ^ (self.len as u64) << 40);
        while text.len() < self.len {
            text.extend(format!("{:016x}", rng.u64(..)).into_bytes());
        }
        text.truncate(self.len);
        text
    }
}

/// The values of a writer's keys.
pub(super) type State = BTreeMap<Place, Value>;
pub(super) type Found = BTreeMap<Place, Vec<u8>>;

#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// Whether the operation takes effect as a whole or not at all. Otherwise each key changes
    /// separately.
    pub(super) is_atomic: bool,
    pub(super) sets: BTreeMap<Place, Option<Value>>,
}

/// One writer's keys: their values at the beginning, and the operations requested since.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer {
    pub(super) base: State,
    pub(super) operations: Vec<Operation>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) writers: Vec<Writer>,
}

/// The smallest and the greatest number of a writer's operations that can have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: usize,
    pub(super) most: usize,
}

impl History {
    pub(super) fn new(writers: usize) -> Self {
        Self { writers: vec![Writer::default(); writers] }
    }

    /// Returns the bounds of each writer that follow from the marks before a loss of power.
    pub(super) fn bounds(&self, marks: impl Iterator<Item = Mark>) -> Vec<Bounds> {
        let mut bounds = vec![Bounds::default(); self.writers.len()];
        for mark in marks {
            let Mark::Returned { writer, operation, durable } = mark else { continue };
            let Some(bounds) = bounds.get_mut(writer) else { continue };
            bounds.most = bounds.most.max(operation + 1);
            if durable {
                bounds.least = bounds.least.max(operation + 1);
            }
        }
        for (bounds, writer) in bounds.iter_mut().zip(&self.writers) {
            // The operation after that may have been in progress; later ones had not begun.
            bounds.most = (bounds.most + 1).min(writer.operations.len());
        }
        bounds
    }

    /// Returns the history that begins with the data found, if the bounds permit that data.
    pub(super) fn explain(&self, bounds: &[Bounds], found: &Found) -> Result<Self, String> {
        let mut parts = vec![Found::new(); self.writers.len()];
        for (place, bytes) in found {
            let writer = place.key.get(..2).and_then(|writer| writer.parse::<usize>().ok());
            let part = writer.and_then(|writer| parts.get_mut(writer));
            let part = part.ok_or_else(|| format!("a record that nobody wrote: {place:?}"))?;
            part.insert(place.clone(), bytes.clone());
        }
        let mut writers = Vec::new();
        for (number, (writer, part)) in self.writers.iter().zip(&parts).enumerate() {
            let bounds = bounds.get(number).copied().unwrap_or_default();
            let base = writer.explain(bounds, part).map_err(|wrong| {
                format!("writer {number}, {} to {} operations: {wrong}", bounds.least, bounds.most)
            })?;
            writers.push(Writer { base, operations: Vec::new() });
        }
        Ok(Self { writers })
    }
}

impl Writer {
    pub(super) fn state(&self, operations: usize) -> State {
        let mut state = self.base.clone();
        for operation in self.operations.iter().take(operations) {
            operation.apply(&mut state);
        }
        state
    }

    pub(super) fn changes(&self, operation: usize) -> bool {
        let before = self.state(operation);
        let sets = self.operations.get(operation).into_iter().flat_map(|operation| &operation.sets);
        sets.into_iter().any(|(place, value)| value.is_some() || before.contains_key(place))
    }

    /// Returns the state that matches the bytes found, or a description of the difference.
    fn explain(&self, bounds: Bounds, found: &Found) -> Result<State, String> {
        let mut state = self.state(bounds.least);
        let mut nearest: Option<(usize, String)> = None;
        for number in bounds.least..=bounds.most {
            let next = self.operations.get(number).filter(|_| number < bounds.most);
            let partly = next.filter(|next| !next.is_atomic);
            match compare(&state, partly, found) {
                Ok(state) => return Ok(state),
                Err((wrong, what)) => {
                    if nearest.as_ref().is_none_or(|(least, _)| wrong < *least) {
                        nearest = Some((
                            wrong,
                            format!("after {number} operations {wrong} keys differ: {what}"),
                        ));
                    }
                }
            }
            if let Some(next) = next {
                next.apply(&mut state);
            }
        }
        Err(nearest.map(|(_, what)| what).unwrap_or_default())
    }
}

impl Operation {
    fn apply(&self, state: &mut State) {
        for (place, value) in &self.sets {
            match value {
                Some(value) => state.insert(place.clone(), *value),
                None => state.remove(place),
            };
        }
    }
}

/// Returns `state` if the bytes found match it, where some keys may match `partly` instead.
/// Otherwise returns the number of keys that differ, and the first of them.
fn compare(
    state: &State,
    partly: Option<&Operation>,
    found: &Found,
) -> Result<State, (usize, String)> {
    let mut is = State::new();
    let mut wrong = (0, String::new());
    let is_value =
        |value: Option<&Value>, place: &Place, bytes: Option<&Vec<u8>>| match (value, bytes) {
            (None, None) => true,
            (Some(value), Some(bytes)) => {
                value.len == bytes.len() && value.bytes(&place.key) == *bytes
            }
            _ => false,
        };
    let other = partly.map(|partly| &partly.sets);
    let places = state.keys().chain(found.keys()).chain(other.iter().flat_map(|sets| sets.keys()));
    let places: std::collections::BTreeSet<&Place> = places.collect();
    for place in places {
        let bytes = found.get(place);
        let expected = state.get(place);
        let or = other.and_then(|sets| sets.get(place));
        let holds = match or {
            _ if is_value(expected, place, bytes) => expected,
            Some(or) if is_value(or.as_ref(), place, bytes) => or.as_ref(),
            _ => {
                wrong.0 += 1;
                if wrong.0 == 1 {
                    wrong.1 = format!(
                        "{place:?} should be {}, and is {}",
                        told(expected, place),
                        shown(bytes)
                    );
                }
                continue;
            }
        };
        if let Some(value) = holds {
            is.insert(place.clone(), *value);
        }
    }
    if wrong.0 == 0 { Ok(is) } else { Err(wrong) }
}

fn told(value: Option<&Value>, place: &Place) -> String {
    shown(value.map(|value| value.bytes(&place.key)).as_ref())
}

/// Returns the beginning of a value, which names its writer.
fn shown(bytes: Option<&Vec<u8>>) -> String {
    bytes.map_or_else(
        || "missing".to_owned(),
        |bytes| {
            format!(
                "{} bytes {:?}",
                bytes.len(),
                String::from_utf8_lossy(&bytes[..bytes.len().min(32)])
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(key: &str) -> Place {
        Place { table: "t".to_owned(), key: key.to_owned() }
    }

    /// A history of one writer: each operation puts a key; if `last_is_atomic`, the last one
    /// removes all keys.
    fn history(operations: usize, last_is_atomic: bool) -> History {
        let mut history = History::new(1);
        let key = |number: usize| place(&format!("00/{number}"));
        for number in 0..operations {
            let sets =
                BTreeMap::from([(key(number), Some(Value { stamp: number as u64, len: 9 }))]);
            history.writers[0].operations.push(Operation { is_atomic: true, sets });
        }
        let sets = (0..operations).map(|number| (key(number), None)).collect();
        history.writers[0].operations.push(Operation { is_atomic: last_is_atomic, sets });
        history
    }

    fn found(history: &History, operations: usize) -> Found {
        let state = history.writers[0].state(operations);
        state.iter().map(|(place, value)| (place.clone(), value.bytes(&place.key))).collect()
    }

    fn marks(operations: usize, durable: bool) -> impl Iterator<Item = Mark> {
        (0..operations).map(move |operation| Mark::Returned { writer: 0, operation, durable })
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_the_next_may() {
        let history = history(5, true);
        let bounds = history.bounds(marks(3, true));
        for (operations, allowed) in [(2, false), (3, true), (4, true), (5, false)] {
            let found = found(&history, operations);
            assert_eq!(history.explain(&bounds, &found).is_ok(), allowed, "{operations}");
        }
        let bounds = history.bounds(marks(3, false));
        assert_eq!(bounds, [Bounds { least: 0, most: 4 }]);
    }

    #[test]
    fn half_an_operation_is_found_out_unless_it_may_be_in_parts() {
        for last_is_atomic in [true, false] {
            let history = history(5, last_is_atomic);
            let bounds = history.bounds(marks(5, true));
            let mut half = found(&history, 5);
            half.remove(&place("00/2"));
            assert_eq!(history.explain(&bounds, &half).is_err(), last_is_atomic);
            half.insert(place("00/9"), b"x".to_vec());
            assert!(history.explain(&bounds, &half).is_err());
        }
    }

    #[test]
    fn a_record_of_nobody_is_found_out() {
        let history = history(2, true);
        let mut found = found(&history, 2);
        found.insert(place("07/1"), b"x".to_vec());
        let bounds = history.bounds(marks(2, true));
        assert!(history.explain(&bounds, &found).unwrap_err().contains("nobody"));
    }
}
