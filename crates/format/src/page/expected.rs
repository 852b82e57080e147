//! The properties that a page's parent requires of it.

use super::Node;
use crate::swip::Swip;

#[derive(Clone, Debug)]
pub struct Expected {
    pub tree_id: u32,
    /// The number of levels below the page. Unknown for the root.
    pub level: Option<u8>,
    /// The lower fence: no key is below it.
    pub lower: Vec<u8>,
    /// The upper fence: every key is below it; `None` at the right edge.
    pub upper: Option<Vec<u8>>,
}

/// Returns the place of a child of an inner page, and the properties that the child must have.
///
/// # Errors
/// A description of the fault, if the reference does not lead to a page.
pub fn child_of(tree_id: u32, node: Node<'_>, position: usize) -> Result<(u64, Expected), String> {
    let key = |position: usize| {
        let mut key = Vec::new();
        node.key(position, &mut key);
        key
    };
    let lower = match position {
        0 => {
            let mut lower = Vec::new();
            node.lower_fence(&mut lower);
            lower
        }
        _ => key(position - 1),
    };
    let upper = match position == node.count() {
        true => node.has_upper_fence().then(|| {
            let mut upper = Vec::new();
            node.upper_fence(&mut upper);
            upper
        }),
        false => Some(key(position)),
    };
    match Swip::decode(node.child(position)) {
        Swip::Cold(place) => Ok((
            place,
            Expected { tree_id, level: Some(node.level().saturating_sub(1)), lower, upper },
        )),
        Swip::Hot(_) => Err(format!("child {position} refers to memory, not to a page")),
    }
}
