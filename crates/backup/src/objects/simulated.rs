//! Objects in memory, with faults that follow from a seed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use qpair_engine::{Error, ErrorKind, Result};

use super::{Object, Objects};

/// The faults of a simulated place: how many of a hundred requests have each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The request fails and is not done.
    pub lost: u8,
    /// The request is done, and its answer is lost.
    pub unanswered: u8,
    /// The request fails, and is done some requests later.
    pub late: u8,
}

/// A request that changes something and is done later.
enum Late {
    Put(String, Vec<u8>),
    PutIfAbsent(String, Vec<u8>),
    Delete(String),
}

struct State {
    objects: BTreeMap<String, Vec<u8>>,
    late: VecDeque<(u64, Late)>,
    faults: Faults,
    random: fastrand::Rng,
    requests: u64,
}

enum Fate {
    Done,
    Lost,
    Unanswered,
    Late,
}

/// Objects in memory. Every request may fail, and a failed one may be done all the same.
pub struct Simulated(Mutex<State>);

impl Simulated {
    /// Returns a place without objects.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Mutex::new(State {
            objects: BTreeMap::new(),
            late: VecDeque::new(),
            faults,
            random: fastrand::Rng::with_seed(seed),
            requests: 0,
        }))
    }

    /// Sets the faults of all requests from here on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Does all requests that are late.
    pub fn settle(&self) {
        let state = &mut *self.state();
        while let Some((_, late)) = state.late.pop_front() {
            state.apply(late);
        }
    }

    /// Returns a place with these objects, without faults and late requests.
    #[must_use]
    pub fn copy(&self) -> Self {
        let copy = Self::new(0, Faults::default());
        copy.state().objects.clone_from(&self.state().objects);
        copy
    }

    /// Changes a byte of an object, as a damaged medium does.
    pub fn damage(&self, name: &str, at: usize) {
        if let Some(byte) = self.state().objects.get_mut(name).and_then(|bytes| bytes.get_mut(at)) {
            *byte ^= 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn apply(&mut self, request: Late) -> bool {
        match request {
            Late::Put(name, bytes) => drop(self.objects.insert(name, bytes)),
            Late::PutIfAbsent(name, _) if self.objects.contains_key(&name) => return false,
            Late::PutIfAbsent(name, bytes) => drop(self.objects.insert(name, bytes)),
            Late::Delete(name) => drop(self.objects.remove(&name)),
        }
        true
    }

    fn fate(&mut self) -> Fate {
        self.requests += 1;
        while self.late.front().is_some_and(|(at, _)| *at <= self.requests) {
            if let Some((_, late)) = self.late.pop_front() {
                self.apply(late);
            }
        }
        let (drawn, faults) = (self.random.u8(0..100), self.faults);
        match drawn {
            _ if drawn < faults.lost => Fate::Lost,
            _ if drawn < faults.lost + faults.unanswered => Fate::Unanswered,
            _ if drawn < faults.lost + faults.unanswered + faults.late => Fate::Late,
            _ => Fate::Done,
        }
    }

    fn change(&mut self, request: Late) -> Result<bool> {
        match self.fate() {
            Fate::Done => Ok(self.apply(request)),
            Fate::Lost => Err(failed()),
            Fate::Unanswered => {
                self.apply(request);
                Err(failed())
            }
            Fate::Late => {
                let at = self.requests + self.random.u64(1..40);
                let position = self.late.partition_point(|(other, _)| *other <= at);
                self.late.insert(position, (at, request));
                Err(failed())
            }
        }
    }

    fn read(&mut self) -> Result<()> {
        match self.fate() {
            Fate::Done => Ok(()),
            _ => Err(failed()),
        }
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::Io, "the simulated place does not answer")
}

impl Objects for Simulated {
    fn place(&self) -> String {
        "a simulated place".to_owned()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.state().change(Late::Put(name.to_owned(), bytes.to_vec())).map(drop)
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.state().change(Late::PutIfAbsent(name.to_owned(), bytes.to_vec()))
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let mut state = self.state();
        state.read()?;
        Ok(state.objects.get(name).cloned())
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Object>> {
        let mut state = self.state();
        state.read()?;
        let all = state.objects.range(prefix.to_owned()..);
        let all = all.take_while(|(name, _)| name.starts_with(prefix));
        let all = all.filter(|(name, _)| name.as_str() > after);
        Ok(all.map(|(name, b)| Object { name: name.clone(), bytes: b.len() as u64 }).collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.state().change(Late::Delete(name.to_owned())).map(drop)
    }
}
