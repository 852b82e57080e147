//! Read-ahead: begins to load the leaves that a scan will come to.

use std::ops::Bound;

use qpair_format::page::Node;
use qpair_format::swip::Swip;

use super::Tree;
use super::descend::{Route, to_level};
use super::scan::{Direction, route};
use crate::task::{Context, Descent, LoadPlan, Loading, Need, Operation};

/// The maximum number of leaves that a scan asks for ahead of itself.
const AHEAD_MAX: usize = 32;
/// The number of leaves that a scan reads one by one before it looks ahead, if the caller did not
/// say how far it goes: short scans should not read leaves that they do not need.
const LEAVES_BEFORE_AHEAD: u64 = 4;

/// The distance that a scan goes, and the distance that it looks ahead.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The number of records that are still wanted; `None` means all.
    left: Option<usize>,
    /// The number of leaves that the scan has passed.
    leaves: u64,
    /// The number of leaves ahead that were asked for.
    ahead: usize,
    /// The length of the last look ahead, in leaves.
    window: usize,
    /// Whether the last look ahead found fewer leaves than wanted, because the range or the parent
    /// ends there.
    cut_short: bool,
}

impl Pace {
    pub(crate) fn limit(&mut self, records: usize) {
        // This bound says nothing about the distance.
        self.left = (records < usize::MAX).then_some(records);
    }

    /// Returns the maximum number of records that are still wanted.
    pub(crate) fn left(&self) -> usize {
        self.left.unwrap_or(usize::MAX)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    pub(crate) fn given(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    /// Returns the number of leaves to ask for before the next one is read, if any. A leaf has
    /// about `leaf_records` records.
    pub(crate) fn window(&mut self, leaf_records: usize) -> Option<usize> {
        match self.left {
            Some(left) => {
                let needed = left.div_ceil(leaf_records.max(1));
                let low = if self.cut_short { 0 } else { AHEAD_MAX / 2 };
                if self.is_at_first() || self.ahead >= needed || self.ahead > low {
                    return None;
                }
                self.window = needed.min(AHEAD_MAX);
            }
            // A scan of many leaves usually continues: the further it has come, the further it
            // looks ahead.
            None => {
                if self.leaves < LEAVES_BEFORE_AHEAD || self.ahead > self.window / 2 {
                    return None;
                }
                self.window = (self.window * 2).clamp(4, AHEAD_MAX);
            }
        }
        Some(self.window)
    }

    /// Notes that `leaves` leaves were asked for, or are in memory.
    pub(crate) fn asked(&mut self, leaves: usize) {
        self.cut_short = leaves < self.window;
        self.ahead = leaves;
    }

    pub(crate) fn passed(&mut self) {
        self.leaves += 1;
        self.ahead = self.ahead.saturating_sub(1);
    }

    pub(crate) fn is_at_first(&self) -> bool {
        self.leaves == 0
    }
}

/// Begins to load up to `window` leaves, starting with the one at which a range begins, under the
/// same parent and within the range. Returns how many such leaves there are. Waits for inner pages
/// only, and gives up if memory is short.
pub(crate) struct ReadAhead<'a> {
    tree: Tree,
    direction: Direction,
    /// The routes to the leaf that the scan comes to next, and to the leaf at which it ends.
    route: Route<'a>,
    end: Route<'a>,
    window: usize,
    descent: Descent,
}

impl<'a> ReadAhead<'a> {
    pub(crate) fn new(
        tree: Tree,
        direction: Direction,
        from: &'a Bound<Vec<u8>>,
        to: &'a Bound<Vec<u8>>,
        window: usize,
    ) -> Self {
        let (route, end) = (route(direction, from), route(direction.opposite(), to));
        Self { tree, direction, route, end, window, descent: Descent::default() }
    }
}

impl Operation for ReadAhead<'_> {
    type Output = usize;

    fn step(&mut self, context: Context<'_>) -> Result<usize, Need> {
        let Some(worker) = context.worker else { return Err(Need::Worker) };
        let Some(place) = to_level(context, &self.tree, self.route, 1)? else { return Ok(0) };
        let mut page = place.page;
        let node = Node::new(page.bytes());
        let (first, last) = (self.route.child_position(node), self.end.child_position(node));
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
                // Read-ahead is only an optimization: whatever changed the page, the scan will find
                // its way.
                break;
            }
            asked = ahead + 1;
            let Swip::Cold(place) = swip else { continue };
            let plan = LoadPlan { parent: page.index(), version: page.version(), position, place };
            match worker.load(plan) {
                Loading::Started(_, version) => {
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
