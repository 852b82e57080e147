//! Describes anomalies in words.

use crate::cycle::Cycle;
use crate::facts::{Facts, Role};
use crate::graph::{Edge, Graph};
use crate::history::{By, Element, History, Isolation, List, Operation, Outcome};

/// The maximum number of elements that are written out.
const LISTED_MAX: usize = 40;

/// Describes the elements of a list.
pub(crate) fn elements(elements: &[Element]) -> String {
    let shown: Vec<String> =
        elements.iter().rev().take(LISTED_MAX).rev().map(Element::to_string).collect();
    let left_out = match elements.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!("({more} more) "),
    };
    format!("[{left_out}{}]", shown.join(" "))
}

pub(crate) fn name(facts: &Facts, fact: usize) -> String {
    match facts.all[fact].role {
        Role::Base => "the state in the beginning".to_owned(),
        Role::Transaction(number) => format!("T{number}"),
        Role::Recovered => "the state after the crash".to_owned(),
    }
}

/// Describes a cycle: its edges, and then its transactions.
pub(crate) fn cycle(history: &History, facts: &Facts, graph: &Graph, cycle: &Cycle) -> String {
    let mut lines = Vec::new();
    for (from, edge, to) in hops(graph, cycle) {
        let (one, other) = (name(facts, from), name(facts, to));
        lines.push(match edge {
            Edge::Ww { list, before, after } => {
                format!(
                    "{one} appended {before} to {list}, and {other} appended {after} after it (ww)"
                )
            }
            Edge::Wr { list, element } => {
                format!("{one} appended {element} to {list}, and {other} read it (wr)")
            }
            Edge::Rw { list, element, by_range } => {
                let by = if by_range { " by a range" } else { "" };
                format!("{one} read {list}{by} without {element}, which {other} appended (rw)")
            }
            Edge::Durable => format!("{one} was durable before the crash, and {other} is later"),
            Edge::Time | Edge::Within => {
                format!("{one} was acknowledged before {other} began (real time)")
            }
        });
    }
    let lists: Vec<List> = cycle.steps.iter().filter_map(|(_, edge)| edge.list()).collect();
    lines.extend(transactions(graph, cycle).into_iter().filter_map(|fact| {
        let number = facts.number(fact)?;
        Some(format!("T{number}: {}", transaction(history, number, &lists)))
    }));
    lines.join("\n")
}

/// Returns the edges between transactions. Consecutive edges of the clock become one.
fn hops(graph: &Graph, cycle: &Cycle) -> Vec<(usize, Edge, usize)> {
    let mut hops: Vec<(usize, Edge, usize)> = Vec::new();
    // The cycle is listed from a transaction on, not from a node of the clock.
    let mut from = None;
    for (number, (node, edge)) in cycle.steps.iter().enumerate() {
        from = graph.facts[*node].or(from);
        let next = cycle.steps[(number + 1) % cycle.steps.len()].0;
        if let (Some(from), Some(to)) = (from, graph.facts[next])
            && *edge != Edge::Within
        {
            hops.push((from, *edge, to));
        }
    }
    hops
}

pub(crate) fn transactions(graph: &Graph, cycle: &Cycle) -> Vec<usize> {
    let mut facts: Vec<usize> = Vec::new();
    for fact in cycle.steps.iter().filter_map(|(node, _)| graph.facts[*node]) {
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    facts
}

/// Describes the operations of a transaction on some lists.
fn transaction(history: &History, number: usize, lists: &[List]) -> String {
    let transaction = &history.transactions[number];
    let isolation = match transaction.isolation {
        Isolation::Snapshot => "snapshot",
        Isolation::Serializable => "serializable",
    };
    let end = match transaction.outcome {
        Outcome::Committed => format!("acknowledged at {}", transaction.ended),
        Outcome::RolledBack => "rolled back".to_owned(),
        Outcome::Unknown => "never answered".to_owned(),
    };
    let concerns = |operation: &&Operation| match operation {
        Operation::Append { list, .. } | Operation::Read { list, .. } => lists.contains(list),
        Operation::RollBack { .. } => true,
    };
    let operations = transaction.operations.iter().filter(concerns).map(operation);
    let operations: Vec<String> = operations.collect();
    format!(
        "process {}, {isolation}, began at {}, {end}: {}",
        transaction.process,
        transaction.began,
        operations.join(", ")
    )
}

fn operation(operation: &Operation) -> String {
    match operation {
        Operation::Append { list, element } => format!("appends {element} to {list}"),
        Operation::Read { list, elements: read, by } => {
            let by = if *by == By::Range { " by a range" } else { "" };
            format!("reads {list}{by}: {}", elements(read))
        }
        Operation::RollBack { to } => format!("takes back what it appended since operation {to}"),
    }
}
