//! The data on devices after a loss of power at one moment of a record.
//!
//! Writes before the last flush are kept. Each write after its device's last flush is lost, kept,
//! or torn between two blocks. Kept writes are applied in the order in which they were recorded.

use fastrand::Rng;

use super::image::Image;
use super::record::{Record, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    AllLost,
    AllKept,
    /// Each write is lost or kept.
    Each,
    /// Each write is lost, kept, or torn.
    Torn,
    /// All writes are kept except one of the last few, which is lost or torn.
    OneLost,
    /// All writes are lost except one of the last few.
    OneKept,
}

const FATES: [Fate; 8] = [
    Fate::AllLost,
    Fate::AllKept,
    Fate::Each,
    Fate::Each,
    Fate::Torn,
    Fate::Torn,
    Fate::OneLost,
    Fate::OneKept,
];

/// Builds the images of several moments, in ascending order.
pub(super) struct Cutter<'r> {
    record: &'r Record,
    /// The data of each device that certainly survives.
    durable: Vec<Image>,
    /// For each device, the steps that a loss of power may lose, and the forced writes among them,
    /// which it cannot lose.
    pending: Vec<Vec<usize>>,
    done: usize,
    /// Whether to plant the fault that flushes have no effect.
    ignores_flushes: bool,
}

impl<'r> Cutter<'r> {
    /// Begins at the start of a record, whose devices held `base`.
    pub(super) fn new(record: &'r Record, base: &[Image], ignores_flushes: bool) -> Self {
        let pending = vec![Vec::new(); base.len()];
        Self { record, durable: base.to_vec(), pending, done: 0, ignores_flushes }
    }

    pub(super) fn advance(&mut self, steps: usize) {
        while self.done < steps.min(self.record.steps.len()) {
            match &self.record.steps[self.done] {
                Step::Mark(_) => {}
                Step::Flush { .. } if self.ignores_flushes => {}
                Step::Flush { device } => {
                    for step in std::mem::take(&mut self.pending[*device]) {
                        apply(self.record, step, &mut self.durable, |_, _| true);
                    }
                }
                Step::Write { device, .. } | Step::Discard { device, .. } => {
                    self.pending[*device].push(self.done);
                }
            }
            self.done += 1;
        }
    }

    /// Returns the images that a loss of power leaves now, and the number of unflushed writes.
    pub(super) fn cut(&self, rng: &mut Rng) -> (Vec<Image>, Fate, usize) {
        let fate = FATES[rng.usize(..FATES.len())];
        let mut images = self.durable.clone();
        let unflushed: usize = self.pending.iter().map(Vec::len).sum();
        // The one write with the other fate, counted back from the last write of the last device.
        let mut odd = Some(rng.usize(..unflushed.clamp(1, 16)));
        for steps in self.pending.iter().rev() {
            let odd_here = odd.and_then(|odd| steps.len().checked_sub(odd + 1));
            odd = if odd_here.is_some() { None } else { odd.map(|odd| odd - steps.len()) };
            for (number, step) in steps.iter().enumerate() {
                let is_odd = odd_here == Some(number);
                let (keeps, tears) = match fate {
                    Fate::AllLost => (false, false),
                    Fate::AllKept => (true, false),
                    Fate::Each => (rng.bool(), false),
                    Fate::Torn => (rng.bool(), rng.u8(0..3) == 0),
                    Fate::OneLost => (!is_odd, is_odd && rng.bool()),
                    Fate::OneKept => (is_odd, false),
                };
                let forced = is_forced(&self.record.steps[*step]);
                if forced || (keeps && !tears) {
                    apply(self.record, *step, &mut images, |_, _| true);
                } else if tears {
                    let kind = rng.u8(0..3);
                    let edge = rng.usize(0..=64);
                    apply(self.record, *step, &mut images, |block, blocks| match kind {
                        0 => block * 64 < blocks * edge,
                        1 => block * 64 >= blocks * edge,
                        _ => rng.bool(),
                    });
                }
            }
        }
        (images, fate, unflushed)
    }
}

fn is_forced(step: &Step) -> bool {
    matches!(step, Step::Write { forced: true, .. })
}

/// Applies the blocks of a step for which `keeps` returns true. `keeps` gets the number of a block
/// and the number of blocks.
fn apply(
    record: &Record,
    step: usize,
    images: &mut [Image],
    mut keeps: impl FnMut(usize, usize) -> bool,
) {
    match &record.steps[step] {
        Step::Write { device, at, from, .. } => {
            let image = &mut images[*device];
            let block = image.shape.block_bytes as usize;
            let bytes = record.bytes(*device, from);
            let blocks = bytes.len().div_ceil(block);
            for (number, content) in bytes.chunks(block).enumerate() {
                if keeps(number, blocks) {
                    image.write(at + (number * block) as u64, content);
                }
            }
        }
        Step::Discard { device, at, len } => {
            let image = &mut images[*device];
            let block = u64::from(image.shape.block_bytes);
            let blocks = len / block;
            for number in 0..blocks {
                if keeps(number as usize, blocks as usize) {
                    image.zero(at + number * block, block);
                }
            }
        }
        Step::Flush { .. } | Step::Mark(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::record::Shape;
    use super::*;

    const BLOCK: u64 = 512;

    /// A device whose first two blocks are written and flushed, and then written again with one
    /// request, and a device that is never flushed.
    fn record() -> (Record, Vec<Image>) {
        let shape = Shape { size_bytes: 1 << 20, block_bytes: BLOCK as u32 };
        let logs = vec![[vec![1; 1024], vec![2; 1024]].concat(), vec![3; 1024]];
        let write = |device, from| Step::Write { device, at: 0, from, forced: false };
        let steps = vec![
            write(0, 0..1024),
            write(1, 0..1024),
            Step::Flush { device: 0 },
            write(0, 1024..2048),
        ];
        (Record::of(logs, steps), vec![Image::blank(shape); 2])
    }

    /// Returns the possible contents of the first two blocks of both devices after a cut behind
    /// `steps` steps.
    fn states(steps: usize, ignores_flushes: bool) -> BTreeSet<[u8; 4]> {
        let (record, base) = record();
        let mut cutter = Cutter::new(&record, &base, ignores_flushes);
        cutter.advance(steps);
        let mut rng = Rng::with_seed(1);
        let all = (0..2000).map(|_| {
            let (images, _, _) = cutter.cut(&mut rng);
            let byte = |device: usize, block: u64| {
                let bytes = images[device].read(block * BLOCK, BLOCK as usize);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn within a block");
                bytes[0]
            };
            [byte(0, 0), byte(0, 1), byte(1, 0), byte(1, 1)]
        });
        all.collect()
    }

    #[test]
    fn what_was_flushed_stays_and_the_rest_is_lost_kept_or_torn() {
        assert_eq!(states(0, false), BTreeSet::from([[0; 4]]));
        let after_flush = states(3, false);
        assert!(after_flush.iter().all(|state| state[..2] == [1, 1]), "{after_flush:?}");
        // A flush of the other device has no effect on this one.
        let second: BTreeSet<_> = after_flush.iter().map(|state| [state[2], state[3]]).collect();
        assert_eq!(second, BTreeSet::from([[0, 0], [0, 3], [3, 0], [3, 3]]));
        let first: BTreeSet<_> =
            states(4, false).iter().map(|state| [state[0], state[1]]).collect();
        assert_eq!(first, BTreeSet::from([[1, 1], [1, 2], [2, 1], [2, 2]]));
    }

    #[test]
    fn a_cut_that_ignores_flushes_loses_what_was_flushed() {
        assert!(states(3, true).contains(&[0; 4]));
    }
}
