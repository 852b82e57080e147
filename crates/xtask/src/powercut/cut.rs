//! The loss of power at one moment of a record: what the devices hold then.
//!
//! What was flushed before is there. Each write after its device's last flush is lost, kept, or torn between two blocks. Writes that
//! are kept take place in the order in which they were recorded.

use fastrand::Rng;

use super::image::Image;
use super::record::{Record, Step};

/// How chance treats what was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    AllLost,
    AllKept,
    /// Each lost or kept.
    Each,
    /// Each lost, kept, or torn.
    Torn,
    /// All kept but one of the last few, which is lost or torn.
    OneLost,
    /// All lost but one of the last few.
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

/// Builds the images of moments that come one after the other.
pub(super) struct Cutter<'r> {
    record: &'r Record,
    /// What survives for certain, device by device.
    durable: Vec<Image>,
    /// For each device, the steps that a loss of power may take, and those among them that it cannot.
    pending: Vec<Vec<usize>>,
    done: usize,
    /// Plants the fault that flushes count for nothing.
    ignores_flushes: bool,
}

impl<'r> Cutter<'r> {
    /// Begins at the start of a record, whose devices held `base`.
    pub(super) fn new(record: &'r Record, base: &[Image], ignores_flushes: bool) -> Self {
        let pending = vec![Vec::new(); base.len()];
        Self { record, durable: base.to_vec(), pending, done: 0, ignores_flushes }
    }

    /// Goes on to the moment after the first `steps` steps.
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

    /// The images that a loss of power leaves now, and how many writes were not flushed.
    pub(super) fn cut(&self, rng: &mut Rng) -> (Vec<Image>, Fate, usize) {
        let fate = FATES[rng.usize(..FATES.len())];
        let mut images = self.durable.clone();
        let unflushed: usize = self.pending.iter().map(Vec::len).sum();
        // The write that is treated otherwise, counted back from the last one of the last device.
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

/// Does those blocks of a step that `keeps` names by their number and how many there are.
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
