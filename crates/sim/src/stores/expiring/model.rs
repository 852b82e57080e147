//! The records that a table with a time to live may show. One task changes each key, so the record
//! of a key is known, except after changes that were not acknowledged.

use std::collections::BTreeMap;

/// A value of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) id: u64,
    /// The span in which the value expires, in milliseconds of the wall clock.
    pub(super) earliest_ms: u64,
    pub(super) latest_ms: u64,
    /// Whether a reader missed the value, so that no reader may see it any more.
    missed: bool,
}

impl Version {
    /// Returns a value that is being put.
    pub(super) fn pending(id: u64) -> Self {
        Self { id, earliest_ms: 0, latest_ms: u64::MAX, missed: false }
    }
}

/// The horizon before and after an operation, in milliseconds.
pub(super) type Horizons = (u64, u64);

/// The known state of the store.
pub(super) struct Model {
    /// The values that a key may have, by table and key.
    keys: BTreeMap<(usize, Vec<u8>), Vec<Option<Version>>>,
    /// The wall clock over time.
    pub(super) walls_ms: Vec<u64>,
    /// The greatest horizon that a reader had.
    pub(super) horizon_ms: u64,
    pub(super) next_id: u64,
    pub(super) operations: u64,
    pub(super) missed: u64,
    pub(super) wrong: Option<String>,
}

impl Model {
    pub(super) fn new(wall_ms: u64) -> Self {
        Self {
            keys: BTreeMap::new(),
            walls_ms: vec![wall_ms],
            horizon_ms: 0,
            next_id: 1,
            operations: 0,
            missed: 0,
            wrong: None,
        }
    }

    pub(super) fn fail(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// Notes a horizon that readers have.
    pub(super) fn note_horizon(&mut self, horizon_ms: u64) -> u64 {
        self.horizon_ms = self.horizon_ms.max(horizon_ms);
        horizon_ms
    }

    pub(super) fn of(&mut self, table: usize, key: &[u8]) -> &mut Vec<Option<Version>> {
        self.keys.entry((table, key.to_vec())).or_insert_with(|| vec![None])
    }

    pub(super) fn keys_of(&self, table: usize) -> Vec<Vec<u8>> {
        self.keys.keys().filter(|(of, _)| *of == table).map(|(_, key)| key.clone()).collect()
    }

    /// Notes that the value of a key is being changed.
    pub(super) fn asks(&mut self, table: usize, key: &[u8], value: Option<u64>) {
        self.of(table, key).push(value.map(Version::pending));
    }

    /// Notes an acknowledged change, which began when the clock had been set so many times.
    pub(super) fn ends(
        &mut self,
        (table, key): (usize, &[u8]),
        value: Option<u64>,
        (begun, ttl_ms): (usize, u64),
        (before_ms, after_ms): Horizons,
    ) {
        self.operations += 1;
        let walls = &self.walls_ms[begun - 1..];
        let (least, most) = (walls.iter().min(), walls.iter().max());
        let version = value.map(|id| Version {
            earliest_ms: before_ms.max(*least.unwrap_or(&0)) + ttl_ms,
            latest_ms: after_ms.max(*most.unwrap_or(&0)) + ttl_ms,
            ..Version::pending(id)
        });
        *self.of(table, key) = vec![version];
    }

    /// Withdraws a change that the store refused, without an error.
    pub(super) fn withdraws(&mut self, table: usize, key: &[u8]) {
        self.operations += 1;
        self.of(table, key).pop();
    }

    /// Judges what a reader found.
    pub(super) fn reads(
        &mut self,
        (table, key): (usize, &[u8]),
        found: Option<u64>,
        (before_ms, after_ms): Horizons,
    ) {
        self.operations += 1;
        let maybe = self.of(table, key);
        let verdict = match found {
            Some(id) => match maybe.iter().flatten().find(|version| version.id == id).copied() {
                None => Err(format!("value {id} is there, of {maybe:?}")),
                Some(version) if version.missed => {
                    Err(format!("value {id} is seen again, which a reader has missed"))
                }
                Some(version) if version.latest_ms <= before_ms => {
                    Err(format!("{version:?} is there at the horizon {before_ms}"))
                }
                Some(version) => {
                    *maybe = vec![Some(version)];
                    Ok(0)
                }
            },
            None => {
                let before = maybe.len();
                let known = format!("{maybe:?}");
                maybe.retain(|it| it.is_none_or(|version| version.earliest_ms <= after_ms));
                let mut missed = 0;
                for version in maybe.iter_mut().flatten() {
                    missed += u64::from(!std::mem::replace(&mut version.missed, true));
                }
                match maybe.is_empty() && before > 0 {
                    true => Err(format!("the record is lost at the horizon {after_ms}: {known}")),
                    false => Ok(missed),
                }
            }
        };
        match verdict {
            Ok(missed) => self.missed += missed,
            Err(what) => self.fail(format!("table {table}, key {}: {what}", key.escape_ascii())),
        }
    }

    /// Judges whether a change that was acknowledged met a record.
    pub(super) fn met(
        &mut self,
        (table, key): (usize, &[u8]),
        met: bool,
        (before_ms, after_ms): Horizons,
    ) {
        // The change itself is the last of the values.
        let maybe = self.of(table, key).clone();
        let before = &maybe[..maybe.len().saturating_sub(1)];
        let fits = before.iter().any(|it| match (it, met) {
            (Some(version), true) => !version.missed && version.latest_ms > before_ms,
            (Some(version), false) => version.missed || version.earliest_ms <= after_ms,
            (None, met) => !met,
        });
        if !fits {
            let key = key.escape_ascii();
            self.fail(format!(
                "table {table}, key {key}: a change met a record: {met}, of {before:?}"
            ));
        }
    }
}
