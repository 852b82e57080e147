//! Read-ahead: begins to load the leaves a scan will come to.

use std::ops::Bound;

use super::Tree;
use super::descend::{Route, to_level};
use super::scan::Direction;
use crate::page::Node;
use crate::swip::Swip;
use crate::task::{Context, Descent, LoadPlan, Loading, Need, Operation};

/// Leaves a scan asks for ahead of itself at most.
const AHEAD_MAX: usize = 32;
/// Leaves it reads one by one before it looks ahead, if nobody said how far it goes: short scans should not read what they do not want.
const LEAVES_BEFORE_AHEAD: u64 = 4;

/// How far a scan looks ahead.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Leaves that it has come past.
    leaves: u64,
    /// Leaves ahead that were asked for.
    ahead: usize,
    /// How far the last look ahead was, leaves.
    window: usize,
    /// It found fewer: there the range ends, or the parent.
    cut_short: bool,
}

impl Pace {
    /// How many leaves to ask for before the next one is read, if any. Of `left` records that are wanted yet, or all, a leaf has about
    /// `leaf_records`.
    pub(crate) fn window(&mut self, left: Option<usize>, leaf_records: usize) -> Option<usize> {
        let needed = match left {
            Some(left) => left.div_ceil(leaf_records.max(1)),
            None => usize::MAX,
        };
        // A scan of many leaves is one of many more, most often; the further it has come, the further it looks ahead.
        let is_time = match left {
            Some(_) => {
                let low = if self.cut_short { 0 } else { AHEAD_MAX / 2 };
                self.leaves > 0 && self.ahead < needed && self.ahead <= low
            }
            None => self.leaves >= LEAVES_BEFORE_AHEAD && self.ahead <= self.window / 2,
        };
        if !is_time {
            return None;
        }
        self.window = match left {
            Some(_) => needed.min(AHEAD_MAX),
            None => (self.window * 2).clamp(4, AHEAD_MAX),
        };
        Some(self.window)
    }

    /// So many leaves were asked for, or are there.
    pub(crate) fn asked(&mut self, leaves: usize) {
        self.cut_short = leaves < self.window;
        self.ahead = leaves;
    }

    /// A leaf was read.
    pub(crate) fn passed(&mut self) {
        self.leaves += 1;
        self.ahead = self.ahead.saturating_sub(1);
    }

    pub(crate) fn is_at_first(&self) -> bool {
        self.leaves == 0
    }
}

/// Begins to load up to `window` leaves from the one a route leads to on, under the same parent and within the range; how many there are
/// of these. Waits for inner pages only, and gives up where memory is short.
pub(crate) struct ReadAhead<'a> {
    tree: Tree,
    direction: Direction,
    route: Route<'a>,
    /// Where the scan ends.
    to: &'a Bound<Vec<u8>>,
    window: usize,
    descent: Descent,
}

impl<'a> ReadAhead<'a> {
    pub(crate) fn new(
        tree: Tree,
        direction: Direction,
        route: Route<'a>,
        to: &'a Bound<Vec<u8>>,
        window: usize,
    ) -> Self {
        Self { tree, direction, route, to, window, descent: Descent::default() }
    }

    /// The last child that the range may need.
    fn last_position(&self, node: Node<'_>) -> usize {
        match (self.direction, self.to) {
            (Direction::Forward, Bound::Unbounded) => node.count(),
            (Direction::Reverse, Bound::Unbounded) => 0,
            (Direction::Forward, Bound::Excluded(key)) => Route::Before(key).child_position(node),
            (_, Bound::Included(key) | Bound::Excluded(key)) => Route::To(key).child_position(node),
        }
    }
}

impl Operation for ReadAhead<'_> {
    type Output = usize;

    fn step(&mut self, context: Context<'_>) -> Result<usize, Need> {
        let Some(worker) = context.worker else { return Err(Need::Worker) };
        let Some(place) = to_level(context, &self.tree, self.route, 1)? else { return Ok(0) };
        let mut page = place.page;
        let node = Node::new(page.bytes());
        let (first, last) = (self.route.child_position(node), self.last_position(node));
        let count = node.count();
        let mut asked = 0;
        for ahead in 0..self.window {
            let position = match self.direction {
                Direction::Forward => Some(first + ahead).filter(|at| *at <= last.min(count)),
                Direction::Reverse => first.checked_sub(ahead).filter(|at| *at >= last),
            };
            let Some(position) = position else { break };
            let swip = Swip::decode(node.child(position));
            if !page.validate() {
                // It is only advice: whatever changed the page, the scan will find its way.
                break;
            }
            asked = ahead + 1;
            let Swip::Cold(page_id) = swip else { continue };
            let plan =
                LoadPlan { parent: page.index(), version: page.version(), position, page_id };
            match worker.load(plan) {
                Loading::Started(version) => {
                    page = context.shared.pool.frames.resume(page.index(), version)
                }
                _ => break,
            }
        }
        Ok(asked)
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
