//! Large values that the logs put: which of them still have their pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use qpair_format::large::{Descriptor, Extents};
use qpair_format::{ErrorKind, Result};

use crate::shared::Shared;
use crate::task::extents_of;

/// Large values whose pages no later one, and no log, took over.
#[derive(Debug, Default)]
pub(super) struct LargeValues {
    values: BTreeMap<(u64, u64), Extents>,
    /// Runs of their pages, by the first one: their ends, and whose they are.
    runs: BTreeMap<u64, (u64, (u64, u64))>,
    /// Their lists could not be read: they are another's by now, or damaged.
    lost: BTreeSet<(u64, u64)>,
}

impl LargeValues {
    /// Notes a value; earlier ones that it overlaps were given back before it was written.
    pub(super) async fn take_over(
        &mut self,
        shared: &Shared,
        descriptor: Descriptor,
    ) -> Result<()> {
        let extents = match descriptor.run() {
            Some(run) => Extents::Run(run),
            None => match extents_of(shared, descriptor).await {
                Ok(Some(extents)) => extents,
                Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
                _ => {
                    self.lost.insert(descriptor.key());
                    return Ok(());
                }
            },
        };
        for run in extents.runs() {
            self.remove_overlapped(run.clone());
            self.runs.insert(run.start, (run.end, descriptor.key()));
        }
        self.values.insert(descriptor.key(), extents);
        Ok(())
    }

    /// Forgets the values that had any of these pages.
    pub(super) fn remove_overlapped(&mut self, pages: Range<u64>) {
        while let Some((_, (end, key))) = self.runs.range(..pages.end).next_back()
            && *end > pages.start
        {
            let key = *key;
            self.remove(key);
        }
    }

    fn remove(&mut self, key: (u64, u64)) {
        let extents = self.values.remove(&key);
        for run in extents.iter().flat_map(Extents::runs) {
            self.runs.remove(&run.start);
        }
    }

    /// Takes the pages of all of them, and forgets those whose pages are something else by now; a run that the store has no room for.
    pub(super) fn claim(&mut self, shared: &Shared) -> Option<Range<u64>> {
        let capacity = shared.space.capacity();
        let beyond = self.runs.iter().find(|(_, (end, _))| *end > capacity);
        if let Some((start, (end, _))) = beyond {
            return Some(*start..*end);
        }
        self.values.retain(|_, extents| {
            let claimed =
                |run: &Range<u64>| shared.space.claim_unlinked(run.start, run.end - run.start);
            let own: Vec<_> = extents.runs().take_while(claimed).collect();
            let is_whole = own.len() == extents.runs().count();
            if !is_whole {
                own.iter().for_each(|run| shared.space.free(run.start, run.end - run.start));
            }
            is_whole
        });
        None
    }

    /// The pages of a value that still has them.
    pub(super) fn get(&self, descriptor: Descriptor) -> Option<&Extents> {
        self.values.get(&descriptor.key())
    }

    /// Whether it is unknown which pages it has, or had.
    pub(super) fn is_lost(&self, descriptor: Descriptor) -> bool {
        self.lost.contains(&descriptor.key())
    }
}
