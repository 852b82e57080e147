//! The leaves of a tree in the order of their keys, and the holes between them.
//!
//! Invariant: the reports cover all keys exactly once: by a leaf whose checksum, id, tree, level
//! and fences are right, or by a hole.

use qpair_format::Result;
use qpair_format::page::{Node, words_of};
use qpair_format::place::page_of;

use super::PageReader;
use qpair_format::page::{Expected, child_of};

/// The number of pages of a tree that are read at once.
const AHEAD: usize = 16;

/// Keys of a tree whose leaves cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) lower: Vec<u8>,
    /// The first key after the hole; `None` if the hole has no end.
    pub(crate) upper: Option<Vec<u8>>,
    /// The page that should lead to the keys, if it is known. Its present content is another page,
    /// or an older copy.
    pub(crate) page_id: Option<u64>,
    pub(crate) why: String,
}

/// The next part of a tree.
pub(crate) enum Part<'a> {
    Leaf(Node<'a>),
    Hole(Hole),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    /// The value, or the descriptor of a large value.
    pub(crate) value: Vec<u8>,
    pub(crate) large: bool,
}

/// The records of a leaf, in order.
pub(crate) fn entries(node: Node<'_>) -> impl Iterator<Item = Entry> {
    (0..node.count()).map(move |position| {
        let value = node.value(position);
        let mut entry = Entry { large: value.overflow, ..Entry::default() };
        node.key(position, &mut entry.key);
        node.bytes.append_to(value.offset, value.len, &mut entry.value);
        entry
    })
}

type See<'a> = dyn FnMut(&mut PageReader, Part<'_>) -> Result<()> + 'a;

/// Walks the tree with this root, and passes all leaves and holes to `see`, in order.
pub(crate) fn walk_leaves(
    reader: &mut PageReader,
    tree_id: u32,
    root: Option<u64>,
    see: &mut See<'_>,
) -> Result<()> {
    let bounds = Expected { tree_id, level: None, lower: Vec::new(), upper: None };
    let page = match root {
        Some(root) => reader.read_page(root)?,
        None => Err("its root is not known".to_owned()),
    };
    visit(reader, bounds, root.map(page_of), page, see)
}

fn visit(
    reader: &mut PageReader,
    bounds: Expected,
    page_id: Option<u64>,
    page: Result<Vec<u8>, String>,
    see: &mut See<'_>,
) -> Result<()> {
    let page = page.map(|page| words_of(&page)).and_then(|page| {
        let fault = fault(Node::new(page.as_slice().into()), &bounds);
        fault.map_or(Ok(page), Err)
    });
    let page = match page {
        Ok(page) => page,
        Err(why) => {
            let Expected { lower, upper, .. } = bounds;
            return see(reader, Part::Hole(Hole { lower, upper, page_id, why }));
        }
    };
    let node = Node::new(page.as_slice().into());
    if node.is_leaf() {
        return see(reader, Part::Leaf(node));
    }
    let mut position = 0;
    while position <= node.count() {
        let mut children = Vec::with_capacity(AHEAD);
        while position <= node.count() && children.len() < AHEAD {
            // The check of the page has excluded references into memory.
            if let Ok(child) = child_of(bounds.tree_id, node, position) {
                children.push(child);
            }
            position += 1;
        }
        let places: Vec<u64> = children.iter().map(|(place, _)| *place).collect();
        let pages = reader.read_pages(&places)?;
        for ((place, bounds), page) in children.into_iter().zip(pages) {
            visit(reader, bounds, Some(page_of(place)), page, see)?;
        }
    }
    Ok(())
}

/// Returns the reason why a page cannot be used in its place, if there is one.
fn fault(node: Node<'_>, place: &Expected) -> Option<String> {
    let page_id = page_of(node.place());
    if !matches!(node.kind_byte(), 1 | 2) || node.tree_id() != place.tree_id {
        return Some(format!("page {page_id} is not of this tree"));
    }
    if place.level.is_some_and(|level| level != node.level()) {
        return Some(format!("page {page_id} is at another level"));
    }
    if let Some(fault) = node.fault() {
        return Some(format!("page {page_id} has {fault}"));
    }
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    node.lower_fence(&mut lower);
    node.upper_fence(&mut upper);
    if lower != place.lower || node.has_upper_fence().then_some(&upper) != place.upper.as_ref() {
        return Some(format!("page {page_id} has other bounds than its parent gives it"));
    }
    let leads_nowhere = !node.is_leaf()
        && (0..=node.count()).any(|position| child_of(place.tree_id, node, position).is_err());
    leads_nowhere.then(|| format!("page {page_id} refers to memory"))
}
