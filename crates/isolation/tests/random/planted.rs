//! Anomalies to plant in a history without anomalies.

use fastrand::Rng;
use qpair_isolation::{
    By, Class, Element, History, Isolation, Kind, List, Operation, Outcome, Transaction, Verdict,
};

type IsFound = fn(&Verdict) -> bool;

/// An anomaly to plant.
pub(crate) struct Planted {
    pub(crate) name: &'static str,
    /// Plants the anomaly, if the history has a place for it. Returns a function that says whether
    /// a verdict contains it.
    pub(crate) plant: fn(&mut History, &mut Rng) -> Option<IsFound>,
}

macro_rules! planted {
    ($($plant:ident),*) => {
        pub(crate) const ALL: &[Planted] = &[$(Planted { name: stringify!($plant), plant: $plant }),*];
    };
}

planted!(
    aborted_read,
    unwritten,
    duplicate,
    swapped,
    hole,
    lost_append,
    stale_read,
    intermediate_read,
    internal,
    g0,
    g1c,
    g_single,
    g2_item,
    g2_phantom,
    long_fork,
    lost_update,
    durable_lost,
    torn_by_a_crash
);

/// Returns the positions of reads of at least `least` elements, none of which the reading
/// transaction appended before.
fn long_reads(history: &History, least: usize) -> Vec<(usize, usize)> {
    let mut reads = Vec::new();
    for (number, transaction) in history.transactions.iter().enumerate() {
        let mut own: Vec<Element> = Vec::new();
        for (step, operation) in transaction.operations.iter().enumerate() {
            match operation {
                Operation::Append { element, .. } => own.push(*element),
                Operation::Read { elements, .. }
                    if elements.len() >= least && !elements.iter().any(|one| own.contains(one)) =>
                {
                    reads.push((number, step));
                }
                _ => {}
            }
        }
    }
    reads
}

/// Returns one of these reads.
fn some_read(history: &History, rng: &mut Rng, least: usize) -> Option<(usize, usize)> {
    let reads = long_reads(history, least);
    (!reads.is_empty()).then(|| reads[rng.usize(0..reads.len())])
}

fn elements_of(history: &mut History, (number, step): (usize, usize)) -> Option<&mut Vec<Element>> {
    match &mut history.transactions[number].operations[step] {
        Operation::Read { elements, .. } => Some(elements),
        _ => None,
    }
}

fn writer_of(history: &History, wanted: Element) -> Option<usize> {
    let has =
        |one: &Operation| matches!(one, Operation::Append { element, .. } if *element == wanted);
    history.transactions.iter().position(|one| one.operations.iter().any(has))
}

fn aborted_read(history: &mut History, rng: &mut Rng) -> Option<IsFound> {
    let read = some_read(history, rng, 1)?;
    let last = *elements_of(history, read)?.last()?;
    let writer = writer_of(history, last)?;
    history.transactions[writer].outcome = Outcome::RolledBack;
    Some(|verdict| verdict.has(Kind::AbortedRead))
}

fn unwritten(history: &mut History, rng: &mut Rng) -> Option<IsFound> {
    let read = some_read(history, rng, 1)?;
    elements_of(history, read)?.push(Element(123_456_789));
    Some(|verdict| verdict.has(Kind::Unwritten))
}

fn duplicate(history: &mut History, rng: &mut Rng) -> Option<IsFound> {
    let read = some_read(history, rng, 1)?;
    let elements = elements_of(history, read)?;
    elements.push(elements[0]);
    Some(|verdict| verdict.has(Kind::Duplicate))
}

fn swapped(history: &mut History, rng: &mut Rng) -> Option<IsFound> {
    let read = some_read(history, rng, 2)?;
    let elements = elements_of(history, read)?;
    elements.swap(0, 1);
    let wrong = elements.clone();
    // Another transaction must have read it too; otherwise the error cannot be seen.
    let again = |one: &(usize, usize)| {
        *one != read
            && matches!(&history.transactions[one.0].operations[one.1], Operation::Read { elements, .. } if elements.contains(&wrong[0]))
    };
    let others = long_reads(history, 2).into_iter().filter(again).count();
    (others > 0)
        .then_some(|verdict| verdict.has(Kind::IncompatibleOrder) || verdict.has(Kind::Internal))
}

/// Makes a range silently omit records.
fn hole(history: &mut History, rng: &mut Rng) -> Option<IsFound> {
    let read = some_read(history, rng, 3)?;
    let elements = elements_of(history, read)?;
    elements.drain(..elements.len() / 2);
    Some(|verdict| {
        verdict.has(Kind::IncompatibleOrder)
            || verdict.has(Kind::Internal)
            || verdict.has(Kind::LostAppend)
    })
}

/// Adds an append, and a later read of the list that lacks the element.
fn lost_append(history: &mut History, rng: &mut Rng) -> Option<IsFound> {
    let list = List(77);
    let ended = end(history);
    let element = Element(rng.u64(1_000_000..2_000_000));
    history.transactions.push(one(ended + 1, vec![append(list, element)]));
    history.transactions.push(one(ended + 20, vec![read(list, &[])]));
    Some(|verdict| verdict.has(Kind::LostAppend))
}

fn stale_read(history: &mut History, rng: &mut Rng) -> Option<IsFound> {
    let reads: Vec<_> = long_reads(history, 1)
        .into_iter()
        .filter(|(reader, step)| {
            let transaction = &history.transactions[*reader];
            let Operation::Read { elements, .. } = &transaction.operations[*step] else {
                return false;
            };
            let writer = elements.last().and_then(|last| writer_of(history, *last));
            writer.is_some_and(|writer| {
                let writer = &history.transactions[writer];
                writer.outcome == Outcome::Committed && writer.ended < transaction.began
            })
        })
        .collect();
    let read = (!reads.is_empty()).then(|| reads[rng.usize(0..reads.len())])?;
    elements_of(history, read)?.pop();
    Some(|verdict| !verdict.is_clean())
}

fn intermediate_read(history: &mut History, _: &mut Rng) -> Option<IsFound> {
    let list = List(78);
    let ended = end(history);
    let (first, second) = (Element(1_000_001), Element(1_000_002));
    history.transactions.push(one(ended + 1, vec![append(list, first), append(list, second)]));
    history.transactions.push(one(ended + 1, vec![read(list, &[first])]));
    Some(|verdict| verdict.has(Kind::IntermediateRead))
}

fn internal(history: &mut History, rng: &mut Rng) -> Option<IsFound> {
    let (number, step) = some_read(history, rng, 1)?;
    let Operation::Read { list, elements, by } =
        history.transactions[number].operations[step].clone()
    else {
        return None;
    };
    let again = Operation::Read { list, elements: elements[1..].to_vec(), by };
    history.transactions[number].operations.insert(step + 1, again);
    Some(|verdict| verdict.has(Kind::Internal))
}

const A: List = List(80);
const B: List = List(81);
const C: List = List(82);
const ONE: Element = Element(1_000_001);
const TWO: Element = Element(1_000_002);

fn g0(history: &mut History, rng: &mut Rng) -> Option<IsFound> {
    let mut two = vec![append(A, TWO), append(B, TWO)];
    if rng.bool() {
        two.reverse();
    }
    add(
        history,
        vec![
            vec![append(A, ONE), append(B, ONE)],
            two,
            vec![read(A, &[ONE, TWO])],
            vec![read(B, &[TWO, ONE])],
        ],
    );
    Some(|verdict| verdict.has_cycle(Class::G0))
}

fn g1c(history: &mut History, _: &mut Rng) -> Option<IsFound> {
    // Three transactions, each of which reads what the one before appended.
    add(
        history,
        vec![
            vec![read(C, &[ONE]), append(A, ONE)],
            vec![read(A, &[ONE]), append(B, ONE)],
            vec![read(B, &[ONE]), append(C, ONE)],
        ],
    );
    Some(|verdict| verdict.has_cycle(Class::G1c))
}

fn g_single(history: &mut History, _: &mut Rng) -> Option<IsFound> {
    add(
        history,
        vec![
            vec![append(A, ONE), append(B, ONE)],
            vec![read(A, &[ONE]), read(B, &[])],
            vec![read(A, &[ONE]), read(B, &[ONE])],
        ],
    );
    Some(|verdict| verdict.has_cycle(Class::GSingle))
}

fn lost_update(history: &mut History, _: &mut Rng) -> Option<IsFound> {
    add(
        history,
        vec![
            vec![read(A, &[]), append(A, ONE)],
            vec![read(A, &[]), append(A, TWO)],
            vec![read(A, &[ONE, TWO])],
        ],
    );
    Some(|verdict| verdict.has_cycle(Class::GSingle))
}

fn skew(by: By) -> Vec<Vec<Operation>> {
    let read = |list| Operation::Read { list, elements: Vec::new(), by };
    vec![vec![read(A), append(B, ONE)], vec![read(B), append(A, ONE)]]
}

fn g2_item(history: &mut History, _: &mut Rng) -> Option<IsFound> {
    add(history, skew(By::Row));
    Some(|verdict| verdict.has(Kind::Cycle { class: Class::G2, phantom: false, realtime: false }))
}

fn g2_phantom(history: &mut History, _: &mut Rng) -> Option<IsFound> {
    add(history, skew(By::Range));
    Some(|verdict| verdict.has(Kind::Cycle { class: Class::G2, phantom: true, realtime: false }))
}

/// Adds two snapshots that see two commits in different orders, which snapshot isolation forbids as
/// well.
fn long_fork(history: &mut History, _: &mut Rng) -> Option<IsFound> {
    add(
        history,
        vec![
            vec![append(A, ONE)],
            vec![append(B, ONE)],
            vec![read(A, &[ONE]), read(B, &[])],
            vec![read(A, &[]), read(B, &[ONE])],
        ],
    );
    history
        .transactions
        .iter_mut()
        .rev()
        .take(4)
        .for_each(|one| one.isolation = Isolation::Snapshot);
    Some(|verdict| verdict.has_cycle(Class::G2))
}

fn durable_lost(history: &mut History, _: &mut Rng) -> Option<IsFound> {
    add(history, vec![vec![append(A, ONE)]]);
    recover(history, |_| true);
    history.recovered.as_mut()?.remove(&A);
    Some(|verdict| verdict.has(Kind::LostAppend))
}

/// Makes one half of a commit that was never answered survive a crash.
fn torn_by_a_crash(history: &mut History, _: &mut Rng) -> Option<IsFound> {
    add(history, vec![vec![append(A, ONE), append(B, ONE)]]);
    history.transactions.last_mut()?.outcome = Outcome::Unknown;
    recover(history, |list| list != B);
    Some(|verdict| verdict.has_cycle(Class::GSingle))
}

/// Ends the history with a crash. Afterwards, the lists contain the longest reads, and the last
/// transaction's appends to the lists that `keeps` selects.
fn recover(history: &mut History, keeps: impl Fn(List) -> bool) {
    let mut state = history.base.clone();
    for transaction in &history.transactions {
        for operation in &transaction.operations {
            if let Operation::Read { list, elements, .. } = operation {
                let longest = state.entry(*list).or_default();
                if elements.len() > longest.len() {
                    longest.clone_from(elements);
                }
            }
        }
    }
    let last = history.transactions.last().map(|one| one.operations.clone()).unwrap_or_default();
    for operation in last {
        if let Operation::Append { list, element } = operation
            && keeps(list)
        {
            state.entry(list).or_default().push(element);
        }
    }
    // Durability is not demanded where it is not known.
    history.transactions.iter_mut().rev().skip(1).for_each(|one| one.durable = false);
    history.recovered = Some(state);
}

fn end(history: &History) -> u64 {
    history.transactions.iter().map(|one| one.ended).max().unwrap_or_default()
}

/// Adds durable serializable transactions, all at the same time, after the others.
fn add(history: &mut History, transactions: Vec<Vec<Operation>>) {
    let began = end(history) + 1;
    history.transactions.extend(transactions.into_iter().map(|operations| one(began, operations)));
}

fn one(began: u64, operations: Vec<Operation>) -> Transaction {
    Transaction {
        process: 99,
        began,
        ended: began + 10,
        operations,
        isolation: Isolation::Serializable,
        outcome: Outcome::Committed,
        durable: true,
    }
}

fn append(list: List, element: Element) -> Operation {
    Operation::Append { list, element }
}

fn read(list: List, elements: &[Element]) -> Operation {
    Operation::Read { list, elements: elements.to_vec(), by: By::Row }
}
