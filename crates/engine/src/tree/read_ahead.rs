//! Read-ahead: begins to load the leaves a scan will come to.

use super::Tree;
use super::descend::{Route, to_level};
use super::scan::Direction;
use crate::page::Node;
use crate::swip::Swip;
use crate::task::{Context, Descent, LoadPlan, Loading, Need, Operation};

/// Begins to load up to `window` leaves from the one a route leads to on, under the same parent. Waits for inner
/// pages only, and gives up where memory is short.
pub(crate) struct ReadAhead<'a> {
    tree: Tree,
    direction: Direction,
    route: Route<'a>,
    window: usize,
    descent: Descent,
}

impl<'a> ReadAhead<'a> {
    pub(crate) fn new(tree: Tree, direction: Direction, route: Route<'a>, window: usize) -> Self {
        Self { tree, direction, route, window, descent: Descent::default() }
    }
}

impl Operation for ReadAhead<'_> {
    type Output = ();

    fn step(&mut self, context: Context<'_>) -> Result<(), Need> {
        let Some(worker) = context.worker else { return Err(Need::Worker) };
        let Some(place) = to_level(context, &self.tree, self.route, 1)? else { return Ok(()) };
        let mut page = place.page;
        let node = Node::new(page.bytes());
        let (first, count) = (self.route.child_position(node), node.count());
        for ahead in 0..self.window {
            let position = match self.direction {
                Direction::Forward => Some(first + ahead).filter(|position| *position <= count),
                Direction::Reverse => first.checked_sub(ahead),
            };
            let Some(position) = position else { break };
            let swip = Swip::decode(node.child(position));
            if !page.validate() {
                // It is only advice: whatever changed the page, the scan will find its way.
                return Ok(());
            }
            let Swip::Cold(page_id) = swip else { continue };
            let plan =
                LoadPlan { parent: page.index(), version: page.version(), position, page_id };
            match worker.load(plan) {
                Loading::Started(version) => {
                    page = context.shared.pool.frames.resume(page.index(), version)
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
