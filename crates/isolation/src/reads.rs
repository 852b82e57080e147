//! Finds anomalies of single reads, without cycles.

use std::collections::{HashMap, HashSet};

use crate::anomaly::{Kind, Verdict};
use crate::explain::{elements as listed, name};
use crate::facts::{Facts, Role, Seen};
use crate::history::{Element, List, Outcome};
use crate::order::Order;

/// Checks every read.
pub(crate) fn check(facts: &Facts, orders: &HashMap<List, Order>, verdict: &mut Verdict) {
    for (reader, seen) in facts.reads() {
        verdict.reads += 1;
        check_elements(facts, reader, seen, verdict);
        check_order(facts, reader, seen, &orders[&seen.list], verdict);
    }
    check_appends(facts, orders, verdict);
}

fn check_elements(facts: &Facts, reader: usize, seen: &Seen, verdict: &mut Verdict) {
    let Seen { list, elements, .. } = seen;
    let mut met = HashSet::new();
    for element in elements {
        if !met.insert(*element) {
            verdict.add(Kind::Duplicate, facts.number(reader), || {
                format!(
                    "{} read {element} twice in {list}: {}",
                    name(facts, reader),
                    listed(elements)
                )
            });
        }
        let Some(writer) = facts.writers.get(&(*list, *element)) else {
            verdict.add(Kind::Unwritten, facts.number(reader), || {
                format!("{} read {element} in {list}, and nobody appended it", name(facts, reader))
            });
            continue;
        };
        let aborted = facts.all[writer.fact].outcome == Outcome::RolledBack;
        if writer.fact != reader && (aborted || !writer.stands) {
            let numbers = facts.number(reader).into_iter().chain(facts.number(writer.fact));
            verdict.add(Kind::AbortedRead, numbers, || {
                let (reader, writer) = (name(facts, reader), name(facts, writer.fact));
                let what = if aborted { "was rolled back" } else { "had taken it back" };
                format!("{reader} read {element} in {list}, which {writer} appended, who {what}")
            });
        }
    }
    let Some(last) = elements.last() else { return };
    let Some(writer) = facts.writer(*list, *last).filter(|writer| *writer != reader) else {
        return;
    };
    let appends = &facts.all[writer].appends;
    let missing = appends.iter().find(|(other, one)| other == list && !met.contains(one));
    if let Some((_, missing)) = missing {
        let numbers = facts.number(reader).into_iter().chain(facts.number(writer));
        verdict.add(Kind::IntermediateRead, numbers, || {
            let (reader, writer) = (name(facts, reader), name(facts, writer));
            format!("{reader} read {last} at the end of {list}, and {writer}, who appended it, appended {missing} as well")
        });
    }
}

fn check_order(facts: &Facts, reader: usize, seen: &Seen, order: &Order, verdict: &mut Verdict) {
    let Seen { list, elements, .. } = seen;
    // Errors of the elements themselves were reported before.
    let known = |element: &&Element| order.position(**element).is_some();
    let (mut read, mut met) = (Vec::new(), HashSet::new());
    read.extend(elements.iter().filter(known).filter(|one| met.insert(**one)).copied());
    if order.elements.starts_with(&read) {
        return;
    }
    let numbers = facts.number(reader).into_iter().chain(facts.number(order.reader));
    verdict.add(Kind::IncompatibleOrder, numbers, || {
        let lacks: Vec<Element> = order.elements[..order.place(&read).end]
            .iter()
            .filter(|one| !met.contains(one))
            .copied()
            .collect();
        let (one, other) = (name(facts, reader), name(facts, order.reader));
        let lacks = match lacks.is_empty() {
            true => "has them in another order".to_owned(),
            false => format!("lacks {}", listed(&lacks)),
        };
        format!(
            "{one} read {list} as {}, which is no beginning of what {other} read: {}; it {lacks}",
            listed(elements),
            listed(&order.elements)
        )
    });
}

/// Finds acknowledged appends that are in no later read.
fn check_appends(facts: &Facts, orders: &HashMap<List, Order>, verdict: &mut Verdict) {
    // For each list, the times at which reads began and the position that each reached, the latest
    // first; then the highest position reached from that time on.
    let mut reads: HashMap<List, Vec<(u64, usize, usize)>> = HashMap::new();
    let mut recovered = None;
    for (reader, seen) in facts.reads() {
        if facts.all[reader].role == Role::Recovered {
            recovered = Some(reader);
            continue;
        }
        let end = orders[&seen.list].place(&seen.elements).end;
        reads.entry(seen.list).or_default().push((facts.all[reader].began, end, reader));
    }
    for reads in reads.values_mut() {
        reads.sort_unstable_by_key(|read| std::cmp::Reverse(read.0));
        let mut most = 0;
        for (_, end, _) in reads.iter_mut() {
            most = most.max(*end);
            *end = most;
        }
    }
    for (writer, fact) in facts.all.iter().enumerate() {
        if fact.outcome != Outcome::Committed {
            continue;
        }
        for (list, element) in &fact.appends {
            let position = orders[list].position(*element);
            let later = reads.get(list).and_then(|reads| {
                let later = reads.partition_point(|read| read.0 > fact.ended);
                reads[..later].last()
            });
            let missed =
                later.filter(|(_, end, _)| position.is_none_or(|position| position >= *end));
            let gone = recovered.filter(|reader| {
                let seen = facts.all[*reader].seen.iter().find(|seen| seen.list == *list);
                fact.durable && seen.is_some_and(|seen| !seen.elements.contains(element))
            });
            if let Some(reader) = missed.map(|missed| missed.2).or(gone) {
                let numbers = facts.number(writer).into_iter().chain(facts.number(reader));
                verdict.add(Kind::LostAppend, numbers, || {
                    let (writer, reader) = (name(facts, writer), name(facts, reader));
                    format!("{writer} appended {element} to {list} and was acknowledged, and no later read has it: {reader} read the list after that")
                });
            }
        }
    }
}
