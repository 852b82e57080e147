//! Bringing the leaf of a key into memory.

use super::Tree;
use super::descend::Route;
use crate::task::{Context, Descent, Need, Operation};

/// Goes down to the leaf of a key, so that it is in memory.
pub(crate) struct Reach<'a> {
    tree: Tree,
    key: &'a [u8],
    descent: Descent,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(tree: Tree, key: &'a [u8]) -> Self {
        Self { tree, key, descent: Descent::default() }
    }
}

impl Operation for Reach<'_> {
    type Output = ();

    fn step(&mut self, context: Context<'_>) -> Result<(), Need> {
        self.descent.walk_to_leaf(context, &self.tree, Route::To(self.key)).map(drop)
    }

    fn descent(&mut self) -> &mut Descent {
        &mut self.descent
    }
}
