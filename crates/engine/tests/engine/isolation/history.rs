//! Histories of transactions on lists, and the anomalies that each isolation level forbids.
//!
//! Each transaction appends elements that no other transaction appends, and reads whole lists. A
//! list therefore shows in which order its writers came, and a read shows which of them it saw.
//! Between two transactions there is an edge if one overwrote what the other wrote (ww), if one
//! read what the other wrote (wr), or if one read what the other overwrote next (rw).
//!
//! - A cycle of ww and wr edges is forbidden everywhere (G0, G1c).
//! - Snapshot isolation forbids every cycle in which no two rw edges follow one another: with one
//!   rw edge it is a lost update or a torn read (G-single), with more a fork of the history.
//! - Serializability forbids every cycle.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Append(u32, u64),
    Read(u32, Vec<u64>),
}

/// A transaction that certainly was committed, or certainly was not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    pub(crate) ops: Vec<Op>,
    pub(crate) committed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Anomaly {
    /// A committed element is missing in its list, or is there twice.
    Lost,
    /// Two reads of a list do not agree on its order.
    Order,
    /// A transaction does not see its own appends, or sees a list change.
    Internal,
    /// An element of a transaction that was not committed was read.
    G1a,
    /// A read between two appends of one transaction.
    G1b,
    /// A cycle of ww and wr edges.
    G1c,
    /// A cycle without two rw edges in a row.
    Snapshot,
    /// A cycle.
    Serializable,
}

/// Returns the anomalies of a history after which the lists have the content `last`.
pub(crate) fn anomalies(history: &[Done], last: &BTreeMap<u32, Vec<u64>>) -> BTreeSet<Anomaly> {
    let mut found = BTreeSet::new();
    let mut writer: BTreeMap<u64, (usize, bool)> = BTreeMap::new();
    for (index, done) in history.iter().enumerate() {
        let mut latest: BTreeMap<u32, u64> = BTreeMap::new();
        for op in &done.ops {
            if let Op::Append(list, element) = op {
                // An element is the transaction's last one in the list until another follows.
                if let Some(before) = latest.insert(*list, *element) {
                    writer.entry(before).and_modify(|(_, last)| *last = false);
                }
                writer.insert(*element, (index, true));
            }
        }
    }
    let empty = Vec::new();
    for (index, done) in history.iter().enumerate() {
        let mut own: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut base: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for op in &done.ops {
            match op {
                Op::Append(list, element) => own.entry(*list).or_default().push(*element),
                Op::Read(list, seen) => {
                    let mine = own.get(list).unwrap_or(&empty);
                    let Some(others) = seen.strip_suffix(mine.as_slice()) else {
                        found.insert(Anomaly::Internal);
                        continue;
                    };
                    if base.insert(*list, others.to_vec()).is_some_and(|before| before != others) {
                        found.insert(Anomaly::Internal);
                    }
                    for element in others {
                        match writer.get(element) {
                            Some((by, _)) if *by == index || !history[*by].committed => {
                                found.insert(Anomaly::G1a);
                            }
                            None => {
                                found.insert(Anomaly::G1a);
                            }
                            _ => {}
                        }
                    }
                    if others.last().is_some_and(|last| writer.get(last).is_some_and(|w| !w.1)) {
                        found.insert(Anomaly::G1b);
                    }
                    let whole = last.get(list).unwrap_or(&empty);
                    if done.committed && !whole.starts_with(others) {
                        found.insert(Anomaly::Order);
                    }
                }
            }
        }
        if done.committed {
            for (list, elements) in &own {
                let whole = last.get(list).unwrap_or(&empty);
                for element in elements {
                    if whole.iter().filter(|other| *other == element).count() != 1 {
                        found.insert(Anomaly::Lost);
                    }
                }
            }
        }
    }
    cycles(history, last, &writer, &mut found);
    found
}

fn cycles(
    history: &[Done],
    last: &BTreeMap<u32, Vec<u64>>,
    writer: &BTreeMap<u64, (usize, bool)>,
    found: &mut BTreeSet<Anomaly>,
) {
    let count = history.len();
    let (mut depends, mut overwritten) =
        (vec![BTreeSet::new(); count], vec![BTreeSet::new(); count]);
    let by = |element: &u64| writer.get(element).map(|(by, _)| *by);
    for whole in last.values() {
        for pair in whole.windows(2) {
            if let (Some(from), Some(to)) = (by(&pair[0]), by(&pair[1]))
                && from != to
            {
                depends[from].insert(to);
            }
        }
    }
    for (index, done) in history.iter().enumerate().filter(|(_, done)| done.committed) {
        for op in &done.ops {
            let Op::Read(list, seen) = op else { continue };
            // The list without the transaction's own appends.
            let seen =
                seen.iter().rposition(|element| by(element) != Some(index)).map_or(0, |at| at + 1);
            let Some(whole) = last.get(list) else { continue };
            if let Some(from) = seen.checked_sub(1).and_then(|at| whole.get(at)).and_then(by)
                && from != index
            {
                depends[from].insert(index);
            }
            if let Some(to) = whole.get(seen).and_then(by)
                && to != index
            {
                overwritten[index].insert(to);
            }
        }
    }
    if has_cycle(&depends) {
        found.insert(Anomaly::G1c);
    }
    let mut all = depends.clone();
    let mut composed = depends.clone();
    for from in 0..count {
        all[from].extend(&overwritten[from]);
        for middle in &depends[from] {
            composed[from].extend(overwritten[*middle].iter());
        }
    }
    if has_cycle(&composed) {
        found.insert(Anomaly::Snapshot);
    }
    if has_cycle(&all) {
        found.insert(Anomaly::Serializable);
    }
}

fn has_cycle(edges: &[BTreeSet<usize>]) -> bool {
    // Repeatedly remove nodes without incoming edges; the rest has a cycle.
    let mut incoming = vec![0; edges.len()];
    edges.iter().flatten().for_each(|to| incoming[*to] += 1);
    let mut free: Vec<_> = (0..edges.len()).filter(|node| incoming[*node] == 0).collect();
    let mut taken = 0;
    while let Some(node) = free.pop() {
        taken += 1;
        for to in &edges[node] {
            incoming[*to] -= 1;
            if incoming[*to] == 0 {
                free.push(*to);
            }
        }
    }
    taken < edges.len()
}
