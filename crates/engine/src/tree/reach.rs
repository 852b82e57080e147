//! Brings the leaf of a key into memory.

use std::cell::Cell;

use qpair_format::page::Node;

use super::Tree;
use super::descend::Route;
use crate::task::{Context, Descent, Need, Operation};

/// Descends to the leaf of a key, so that it is in memory.
pub(crate) struct Reach<'a> {
    tree: Tree,
    key: &'a [u8],
    /// The counter of the loads that this operation makes. With a counter it does not wait for a
    /// leaf that another task loads.
    loads: Option<&'a Cell<usize>>,
    has_loaded: bool,
    descent: Descent,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(tree: Tree, key: &'a [u8]) -> Self {
        Self { tree, key, loads: None, has_loaded: false, descent: Descent::default() }
    }

    /// Makes this one of many descents whose keys may share leaves. It counts its loads, and ends
    /// if another task already loads its leaf.
    pub(crate) fn beside(mut self, loads: &'a Cell<usize>) -> Self {
        self.loads = Some(loads);
        self
    }

    /// Whether the page that the descent waits for is a leaf.
    fn is_above_leaf(&self, context: Context<'_>) -> bool {
        self.descent.at.is_some_and(|(frame, version)| {
            let page = context.shared.pool.frames.resume(frame, version);
            Node::new(page.bytes()).level() == 1 && page.validate()
        })
    }
}

impl Operation for Reach<'_> {
    type Output = ();

    fn step(&mut self, context: Context<'_>) -> Result<(), Need> {
        if self.loads.is_some() && context.shared.space.is_squeezed() {
            // Few frames have pages that can leave. A load ahead would take them from the tasks
            // that the next checkpoint waits for.
            return Ok(());
        }
        let need = match self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key)) {
            Ok(_) => return Ok(()),
            Err(need) => need,
        };
        match (need, self.loads) {
            (Need::Load(_), Some(loads)) => {
                loads.set(loads.get() + usize::from(!self.has_loaded));
                self.has_loaded = true;
            }
            (Need::Io(_), Some(_)) if !self.has_loaded && self.is_above_leaf(context) => {
                return Ok(());
            }
            _ => {}
        }
        Err(need)
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
