//! Flows: jobs that share requests by weight.
//!
//! As in fio, a job may submit a request while its share of the flow's requests does not exceed its
//! share of the weights.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::job::{FlowShare, Job};

#[derive(Debug, Default)]
pub(super) struct Flow {
    /// The number of requests of the running jobs.
    done: AtomicU64,
    /// The sum of the weights of the running jobs.
    weight: AtomicU64,
}

pub(super) fn flows(jobs: &[Job]) -> HashMap<u32, Arc<Flow>> {
    jobs.iter().filter_map(|job| Some((job.flow?.flow, Arc::default()))).collect()
}

/// A running job's share of its flow. Dropping it removes the job's requests and weight from the
/// flow.
pub(super) struct Share {
    flow: Arc<Flow>,
    weight: u64,
    own: u64,
}

impl Share {
    pub(super) fn join(flow: &Arc<Flow>, share: FlowShare) -> Self {
        let weight = u64::from(share.weight);
        flow.weight.fetch_add(weight, Ordering::Relaxed);
        Self { flow: flow.clone(), weight, own: 0 }
    }

    /// Counts one request if it is this job's turn; otherwise returns `false`.
    pub(super) fn take(&mut self) -> bool {
        let done = u128::from(self.flow.done.load(Ordering::Relaxed).max(1));
        let all = u128::from(self.flow.weight.load(Ordering::Relaxed));
        if u128::from(self.own) * all > u128::from(self.weight) * done {
            return false;
        }
        self.flow.done.fetch_add(1, Ordering::Relaxed);
        self.own += 1;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.flow.weight.fetch_sub(self.weight, Ordering::Relaxed);
        self.flow.done.fetch_sub(self.own, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn turns_are_by_weight_and_free_when_alone() {
        let flow = Arc::default();
        let share = |weight| FlowShare { weight, flow: 0, pause: Duration::ZERO };
        let (mut one, mut eight) = (Share::join(&flow, share(1)), Share::join(&flow, share(8)));
        let (mut ones, mut eights) = (0, 0);
        for _ in 0..9000 {
            ones += u32::from(one.take());
            eights += u32::from(eight.take());
        }
        assert!(eights.abs_diff(8 * ones) <= 16, "{ones} and {eights}");
        drop(one);
        assert!((0..9000).all(|_| eight.take()));
    }
}
