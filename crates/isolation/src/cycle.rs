//! The shortest cycle of the worst class in a component.
//!
//! Worst is what the weakest isolation forbids already: writes alone, then with reads of what was written, then with one
//! read of what was replaced, then with several; each without the order of real time before those that need it.

use std::collections::{HashMap, VecDeque};

use crate::anomaly::{Class, Kind};
use crate::graph::{Edge, Graph};

/// A cycle: nodes with the edge to the next, the last one's to the first.
pub(crate) struct Cycle {
    pub(crate) kind: Kind,
    pub(crate) steps: Vec<(usize, Edge)>,
}

/// First edges that are tried in a component for each class, at most: components are small, but for a store that is very wrong.
const TRIED_MAX: usize = 200;

/// The worst cycle of a component.
pub(crate) fn worst(graph: &Graph, component: &[usize]) -> Option<Cycle> {
    let within: HashMap<usize, ()> = component.iter().map(|node| (*node, ())).collect();
    for realtime in [false, true] {
        for class in [Class::G0, Class::G1c, Class::GSingle, Class::G2] {
            if let Some(steps) = shortest(graph, component, &within, class, realtime) {
                let phantom =
                    steps.iter().any(|(_, edge)| matches!(edge, Edge::Rw { by_range: true, .. }));
                return Some(Cycle { kind: Kind::Cycle { class, phantom, realtime }, steps });
            }
        }
    }
    None
}

/// Whether a cycle of the class begins with such an edge.
fn begins(class: Class, edge: Edge) -> bool {
    match class {
        Class::G0 => matches!(edge, Edge::Ww { .. }),
        Class::G1c => matches!(edge, Edge::Wr { .. }),
        Class::GSingle | Class::G2 => matches!(edge, Edge::Rw { .. }),
    }
}

/// Whether a cycle of the class may go on with such an edge.
fn goes_on(class: Class, realtime: bool, edge: Edge) -> bool {
    match edge {
        Edge::Within | Edge::Ww { .. } => true,
        Edge::Wr { .. } => class != Class::G0,
        Edge::Rw { .. } => class == Class::G2,
        Edge::Time | Edge::Durable => realtime,
    }
}

fn shortest(
    graph: &Graph,
    component: &[usize],
    within: &HashMap<usize, ()>,
    class: Class,
    realtime: bool,
) -> Option<Vec<(usize, Edge)>> {
    let mut best: Option<(usize, Vec<(usize, Edge)>)> = None;
    let firsts = component.iter().flat_map(|node| {
        let edges = graph.edges[*node].iter().filter(|(to, _)| within.contains_key(to));
        edges.map(|(to, edge)| (*node, *to, *edge))
    });
    for (from, to, first) in firsts.filter(|(.., edge)| begins(class, *edge)).take(TRIED_MAX) {
        let most = best.as_ref().map_or(usize::MAX, |best| best.0);
        let Some((len, rest)) =
            way(graph, within, (to, from), most, |edge| goes_on(class, realtime, edge))
        else {
            continue;
        };
        let steps = std::iter::once((from, first)).chain(rest).collect();
        best = Some((len, steps));
    }
    best.map(|best| best.1)
}

/// The shortest way, counted in transactions, if it is shorter than `most`.
fn way(
    graph: &Graph,
    within: &HashMap<usize, ()>,
    (from, to): (usize, usize),
    most: usize,
    may: impl Fn(Edge) -> bool,
) -> Option<(usize, Vec<(usize, Edge)>)> {
    // How far each node is, and where from.
    let mut reached: HashMap<usize, (usize, Option<(usize, Edge)>)> =
        HashMap::from([(from, (0, None))]);
    let mut queue = VecDeque::from([(0, from)]);
    while let Some((len, node)) = queue.pop_front() {
        if reached[&node].0 < len {
            continue;
        }
        if node == to {
            break;
        }
        for (next, edge) in &graph.edges[node] {
            if !may(*edge) || !within.contains_key(next) {
                continue;
            }
            // The clock and the two moments of one transaction add none.
            let adds = usize::from(graph.facts[*next].is_some() && *edge != Edge::Within);
            let next_len = len + adds;
            if next_len >= most || reached.get(next).is_some_and(|known| known.0 <= next_len) {
                continue;
            }
            reached.insert(*next, (next_len, Some((node, *edge))));
            match adds {
                0 => queue.push_front((next_len, *next)),
                _ => queue.push_back((next_len, *next)),
            }
        }
    }
    let len = reached.get(&to)?.0;
    let mut steps = Vec::new();
    let mut node = to;
    while let Some((before, edge)) = reached[&node].1 {
        steps.push((before, edge));
        node = before;
    }
    steps.reverse();
    Some((len, steps))
}
