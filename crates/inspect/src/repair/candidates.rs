//! Finds leaves by examining every page, and chooses which of them stand in for the parts that a
//! tree cannot reach.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use qpair_format::Result;
use qpair_format::page::{Node, PageKind, damage, field, own_place, words_of};

use super::interrupted;
use crate::offline::{Hole, PageReader};
use qpair_format::image::RECORD_PAGES;

/// The number of ranges that are read between two reports of progress.
const RANGES_AT_ONCE: u64 = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    timestamp: u64,
    place: u64,
    /// Whether the checkpoint has the page in use.
    used: bool,
    records: usize,
}

/// Leaves by their trees, the best first.
#[derive(Debug, Default)]
pub(super) struct Candidates(BTreeMap<u32, Vec<Candidate>>);

/// A leaf that stands in for some keys of a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StandIn {
    pub(super) lower: Vec<u8>,
    pub(super) upper: Option<Vec<u8>>,
    /// The place of the leaf, and whether it is an older copy; `None` if no leaf was found.
    pub(super) page: Option<(u64, bool)>,
}

impl Candidates {
    pub(super) fn add(&mut self, more: BTreeMap<u32, Vec<Candidate>>) {
        for (tree, leaves) in more {
            let all = self.0.entry(tree).or_default();
            all.extend(leaves);
            // A sorted load has the timestamp of the commit before it, which may be the commit that
            // emptied the table. Of the two, the full leaf is the later one.
            all.sort_by_key(|leaf| std::cmp::Reverse((leaf.used, leaf.timestamp, leaf.records)));
        }
    }

    /// Returns the trees that have candidates.
    pub(super) fn trees(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    /// Covers the keys of a hole: in order, each key once.
    pub(super) fn cover(&self, tree: u32, hole: &Hole) -> Vec<StandIn> {
        // The ranges that are not covered yet, by their first keys.
        let mut open = BTreeMap::from([(hole.lower.clone(), hole.upper.clone())]);
        let mut covered = Vec::new();
        for leaf in self.0.get(&tree).into_iter().flatten() {
            if open.is_empty() {
                break;
            }
            let met: Vec<Vec<u8>> = open
                .iter()
                .filter(|(from, to)| {
                    is_below(from, leaf.upper.as_ref()) && is_below(&leaf.lower, to.as_ref())
                })
                .map(|(from, _)| from.clone())
                .collect();
            for from in met {
                let Some(to) = open.remove(&from) else { continue };
                let lower = from.clone().max(leaf.lower.clone());
                let upper = least(to.clone(), leaf.upper.clone());
                if from < lower {
                    open.insert(from, Some(lower.clone()));
                }
                if let Some(upper) = &upper
                    && is_below(upper, to.as_ref())
                {
                    open.insert(upper.clone(), to);
                }
                covered.push(StandIn { lower, upper, page: Some((leaf.place, !leaf.used)) });
            }
        }
        let lost = open.into_iter().map(|(lower, upper)| StandIn { lower, upper, page: None });
        covered.extend(lost);
        covered.sort_by(|a, b| a.lower.cmp(&b.lower));
        covered
    }
}

/// Whether `key` is below `bound`. `None` is above every key.
pub(super) fn is_below(key: &[u8], bound: Option<&Vec<u8>>) -> bool {
    bound.is_none_or(|bound| key < bound.as_slice())
}

fn least(a: Option<Vec<u8>>, b: Option<Vec<u8>>) -> Option<Vec<u8>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Examines every page for leaves: all leaves, or those with keys of these holes, which are in
/// order. `used` says whether the checkpoint's trees have a page in use.
pub(super) fn scan(
    reader: &mut PageReader,
    wanted: Option<&BTreeMap<u32, Vec<Hole>>>,
    used: &dyn Fn(u64) -> bool,
    progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
) -> Result<BTreeMap<u32, Vec<Candidate>>> {
    let mut found: BTreeMap<u32, Vec<Candidate>> = BTreeMap::new();
    let (page_size, capacity) = (reader.page_size(), reader.capacity());
    let page_bytes = reader.page_bytes();
    let pages_at_once = (reader.transfer_bytes() / page_size).max(1) as u64;
    let mut look = |page_id: u64, page: &[u8]| {
        let page = &page[..page_bytes];
        let place = own_place(page, page_id);
        if page[field::KIND] != PageKind::Leaf as u8 || damage(page, place).is_some() {
            return;
        }
        let words = words_of(page);
        let node = Node::new(words.as_slice().into());
        if !node.is_leaf() || node.fault().is_some() {
            return;
        }
        let mut leaf = Candidate {
            lower: Vec::new(),
            upper: None,
            timestamp: node.timestamp(),
            place,
            used: used(page_id),
            records: node.count(),
        };
        node.lower_fence(&mut leaf.lower);
        if node.has_upper_fence() {
            node.upper_fence(leaf.upper.insert(Vec::new()));
        }
        if wanted.is_none_or(|wanted| is_wanted(wanted.get(&node.tree_id()), &leaf)) {
            found.entry(node.tree_id()).or_default().push(leaf);
        }
    };
    let mut next = RECORD_PAGES;
    while next < capacity {
        let end = (next + pages_at_once * RANGES_AT_ONCE).min(capacity);
        let firsts: Vec<u64> = (next..end).step_by(pages_at_once as usize).collect();
        let count = |first: u64| pages_at_once.min(end - first);
        let ranges: Vec<(u64, usize)> = firsts
            .iter()
            .map(|first| (first * page_size as u64, count(*first) as usize * page_size))
            .collect();
        let mut unread = Vec::new();
        reader.read_ranges(&ranges, |index, bytes| {
            match bytes {
                Some(bytes) => (firsts[index]..)
                    .zip(bytes.chunks_exact(page_size))
                    .for_each(|(page_id, page)| look(page_id, page)),
                None => unread.push(firsts[index]),
            }
            Ok(())
        })?;
        for first in unread {
            // An unreadable page must not make others unreadable.
            let ranges: Vec<(u64, usize)> = (first..first + count(first))
                .map(|page_id| (page_id * page_size as u64, page_size))
                .collect();
            reader.read_ranges(&ranges, |index, page| {
                page.iter().for_each(|page| look(first + index as u64, page));
                Ok(())
            })?;
        }
        next = end;
        if progress(next, capacity).is_break() {
            return Err(interrupted());
        }
    }
    Ok(found)
}

/// Whether `leaf` has keys of one of the holes.
fn is_wanted(holes: Option<&Vec<Hole>>, leaf: &Candidate) -> bool {
    let Some(holes) = holes else { return false };
    let first = holes.partition_point(|hole| !is_below(&leaf.lower, hole.upper.as_ref()));
    holes.get(first).is_some_and(|hole| is_below(&hole.lower, leaf.upper.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(range: (&str, &str), timestamp: u64, place: u64, used: bool) -> Candidate {
        let upper = (!range.1.is_empty()).then(|| range.1.into());
        Candidate { lower: range.0.into(), upper, timestamp, place, used, records: 1 }
    }

    fn covered(leaves: Vec<Candidate>, from: &str, to: &str) -> Vec<(String, String, u64)> {
        let mut candidates = Candidates::default();
        candidates.add(BTreeMap::from([(1, leaves)]));
        let upper = (!to.is_empty()).then(|| to.into());
        let hole = Hole { lower: from.into(), upper, page_id: None, why: String::new() };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        candidates
            .cover(1, &hole)
            .into_iter()
            .map(|part| {
                let upper = part.upper.map_or(String::new(), text);
                (text(part.lower), upper, part.page.map_or(0, |(page, _)| page))
            })
            .collect()
    }

    #[test]
    fn the_newest_leaf_counts_and_what_is_in_use_before_it() {
        let own = |parts: &[(&str, &str, u64)]| -> Vec<(String, String, u64)> {
            parts.iter().map(|(a, b, page)| ((*a).into(), (*b).into(), *page)).collect()
        };
        let leaves = vec![
            leaf(("", "k"), 5, 10, false),
            leaf(("c", "f"), 9, 11, false),
            leaf(("m", ""), 1, 12, true),
            leaf(("j", "z"), 99, 13, false),
        ];
        assert_eq!(
            covered(leaves.clone(), "b", ""),
            own(&[("b", "c", 10), ("c", "f", 11), ("f", "j", 10), ("j", "m", 13), ("m", "", 12)])
        );
        assert_eq!(
            covered(leaves[..2].to_vec(), "e", "p"),
            own(&[("e", "f", 11), ("f", "k", 10), ("k", "p", 0)])
        );
        assert_eq!(covered(Vec::new(), "", ""), own(&[("", "", 0)]));
    }
}
