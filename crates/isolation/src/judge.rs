//! Judges a history.

use crate::anomaly::Verdict;
use crate::components::components;
use crate::cycle::Search;
use crate::explain;
use crate::facts::Facts;
use crate::graph::Graph;
use crate::history::History;
use crate::order::orders;
use crate::reads;

/// Finds everything in a history that no store with the promised isolation can produce. For a
/// correct history, takes time in proportion to its size.
#[must_use]
pub fn judge(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let facts = Facts::new(history, &mut verdict);
    verdict.transactions = facts
        .all
        .iter()
        .filter(|fact| fact.took_place && !fact.appends.is_empty() || !fact.seen.is_empty())
        .count() as u64;
    let orders = orders(&facts);
    reads::check(&facts, &orders, &mut verdict);
    let graph = Graph::new(&facts, &orders, &mut verdict);
    let components = components(&graph.edges);
    let mut search = Search::new(&graph, &components);
    for component in &components {
        let Some(cycle) = search.worst(component) else { continue };
        let numbers =
            explain::transactions(&graph, &cycle).into_iter().filter_map(|fact| facts.number(fact));
        let numbers: Vec<usize> = numbers.collect();
        verdict.add(cycle.kind, numbers, || explain::cycle(history, &facts, &graph, &cycle));
    }
    verdict
}
