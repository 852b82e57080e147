//! The large values that the logs put, and which of them still have their pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use qpair_format::large::{Descriptor, Extents};
use qpair_format::{ErrorKind, Result};

use crate::shared::Shared;
use crate::task::extents_of;

/// Large values whose pages were not reused, neither for a later value nor for a log.
#[derive(Debug, Default)]
pub(super) struct LargeValues {
    values: BTreeMap<(u64, u64), Extents>,
    /// The runs of the values' pages: by first page, the end and the key of the value.
    runs: BTreeMap<u64, (u64, (u64, u64))>,
    /// Values whose lists of runs could not be read: the lists' pages belong to others by now, or
    /// are damaged.
    lost: BTreeSet<(u64, u64)>,
}

impl LargeValues {
    /// Adds a value, and removes earlier values that it overlaps: their pages were freed before it
    /// was written.
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

    /// Claims the pages of all values, and removes the values whose pages have another use by now.
    /// Returns a run beyond the store's end, if there is one.
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

    /// Returns the pages of a value that still has them.
    pub(super) fn get(&self, descriptor: Descriptor) -> Option<&Extents> {
        self.values.get(&descriptor.key())
    }

    /// Whether the pages of this value are unknown, because its list could not be read.
    pub(super) fn is_lost(&self, descriptor: Descriptor) -> bool {
        self.lost.contains(&descriptor.key())
    }
}
