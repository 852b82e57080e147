//! The shortest cycle of the worst class in a component.
//!
//! The worst class is the one that the weakest isolation forbids already. The classes from the
//! worst on: writes alone; also reads of what was written; also one read of what was replaced; also
//! several such reads. Each class without the order of real time comes before the classes that need
//! it.

use std::collections::VecDeque;

use crate::anomaly::{Class, Kind};
use crate::graph::{Edge, Graph};

/// A cycle: each node with its edge to the next. The last node's edge leads to the first.
pub(crate) struct Cycle {
    pub(crate) kind: Kind,
    pub(crate) steps: Vec<(usize, Edge)>,
}

/// The maximum number of edges followed for one class in one component. A component is small unless
/// the store is very wrong, and then the cycles of the last class are found at once.
const FOLLOWED_MAX: u64 = 30_000_000;
/// The maximum number of edges followed after a cycle was found, to look for a shorter one.
const FOLLOWED_MORE_MAX: u64 = 1_000_000;

/// Looks for cycles in the components of a graph.
pub(crate) struct Search<'g> {
    graph: &'g Graph,
    /// The component of each node that was visited.
    component: Vec<usize>,
    /// The edge by which each node was reached, and the search that did so.
    reached: Vec<Reached>,
    searches: u64,
    /// The number of edges that may still be followed.
    left: u64,
}

#[derive(Clone, Copy, Default)]
struct Reached {
    search: u64,
    /// The number of transactions on the path.
    len: usize,
    before: Option<(usize, Edge)>,
}

impl<'g> Search<'g> {
    pub(crate) fn new(graph: &'g Graph, components: &[Vec<usize>]) -> Self {
        let mut component = vec![usize::MAX; graph.edges.len()];
        for (number, nodes) in components.iter().enumerate() {
            nodes.iter().for_each(|node| component[*node] = number);
        }
        let reached = vec![Reached::default(); graph.edges.len()];
        Self { graph, component, reached, searches: 0, left: 0 }
    }

    pub(crate) fn worst(&mut self, component: &[usize]) -> Option<Cycle> {
        for realtime in [false, true] {
            for class in [Class::G0, Class::G1c, Class::GSingle, Class::G2] {
                if let Some(steps) = self.shortest(component, class, realtime) {
                    let phantom = steps
                        .iter()
                        .any(|(_, edge)| matches!(edge, Edge::Rw { by_range: true, .. }));
                    return Some(Cycle { kind: Kind::Cycle { class, phantom, realtime }, steps });
                }
            }
        }
        None
    }

    fn shortest(
        &mut self,
        component: &[usize],
        class: Class,
        realtime: bool,
    ) -> Option<Vec<(usize, Edge)>> {
        let graph = self.graph;
        self.left = FOLLOWED_MAX;
        let (mut len_max, mut best) = (usize::MAX, None);
        for from in component {
            for (to, first) in &graph.edges[*from] {
                if self.left == 0 {
                    return best;
                }
                if !begins(class, *first) || self.component[*to] != self.component[*from] {
                    continue;
                }
                let way = self.way((*to, *from), len_max, |edge| goes_on(class, realtime, edge));
                if let Some((len, rest)) = way {
                    if best.is_none() {
                        self.left = self.left.min(FOLLOWED_MORE_MAX);
                    }
                    len_max = len;
                    best = Some(std::iter::once((*from, *first)).chain(rest).collect());
                }
            }
        }
        best
    }

    /// Finds the shortest path, counted in transactions, if it is shorter than `len_max`.
    fn way(
        &mut self,
        (from, to): (usize, usize),
        len_max: usize,
        may: impl Fn(Edge) -> bool,
    ) -> Option<(usize, Vec<(usize, Edge)>)> {
        self.searches += 1;
        let search = self.searches;
        self.reached[from] = Reached { search, len: 0, before: None };
        let mut queue = VecDeque::from([(0, from)]);
        while let Some((len, node)) = queue.pop_front() {
            if self.reached[node].len < len {
                continue;
            }
            if node == to {
                break;
            }
            for (next, edge) in &self.graph.edges[node] {
                self.left = self.left.saturating_sub(1);
                if !may(*edge) || self.component[*next] != self.component[node] {
                    continue;
                }
                // The clock's nodes, and the second node of a transaction, do not count.
                let adds = usize::from(self.graph.facts[*next].is_some() && *edge != Edge::Within);
                let len = len + adds;
                let known = self.reached[*next];
                if len >= len_max || known.search == search && known.len <= len {
                    continue;
                }
                self.reached[*next] = Reached { search, len, before: Some((node, *edge)) };
                match adds {
                    0 => queue.push_front((len, *next)),
                    _ => queue.push_back((len, *next)),
                }
            }
        }
        let end = self.reached[to];
        if end.search != search {
            return None;
        }
        let mut steps = Vec::new();
        let mut before = end.before;
        while let Some((node, edge)) = before {
            steps.push((node, edge));
            before = self.reached[node].before;
        }
        steps.reverse();
        Some((end.len, steps))
    }
}

/// Whether a cycle of the class may begin with this edge.
fn begins(class: Class, edge: Edge) -> bool {
    match class {
        Class::G0 => matches!(edge, Edge::Ww { .. }),
        Class::G1c => matches!(edge, Edge::Wr { .. }),
        Class::GSingle | Class::G2 => matches!(edge, Edge::Rw { .. }),
    }
}

/// Whether a cycle of the class may continue with this edge.
fn goes_on(class: Class, realtime: bool, edge: Edge) -> bool {
    match edge {
        Edge::Within | Edge::Ww { .. } => true,
        Edge::Wr { .. } => class != Class::G0,
        Edge::Rw { .. } => class == Class::G2,
        Edge::Time | Edge::Durable => realtime,
    }
}
