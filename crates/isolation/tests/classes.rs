//! Handmade histories: for each class of anomaly one that the judge must reject, and the same one
//! without the anomaly, which must pass.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use qpair_isolation::{
    By, Class, Element, History, Isolation, Kind, List, Operation, Outcome, Transaction, judge,
};

fn append(list: u32, element: u64) -> Operation {
    Operation::Append { list: List(list), element: Element(element) }
}

fn read_by(by: By, list: u32, elements: &[u64]) -> Operation {
    let elements = elements.iter().copied().map(Element).collect();
    Operation::Read { list: List(list), elements, by }
}

fn read(list: u32, elements: &[u64]) -> Operation {
    read_by(By::Row, list, elements)
}

/// Makes a durable serializable transaction between two times.
fn between(began: u64, ended: u64, operations: Vec<Operation>) -> Transaction {
    Transaction {
        process: 0,
        began,
        ended,
        operations,
        isolation: Isolation::Serializable,
        outcome: Outcome::Committed,
        durable: true,
    }
}

/// Makes a history of transactions that all ran at the same time.
fn beside(transactions: Vec<Vec<Operation>>) -> History {
    let all = transactions.into_iter().map(|operations| between(1, 1000, operations));
    History { transactions: all.collect(), ..History::default() }
}

/// Makes a history of transactions that ran one after the other.
fn in_turn(transactions: Vec<Vec<Operation>>) -> History {
    let all =
        (0..).zip(transactions).map(|(at, operations)| between(10 * at, 10 * at + 5, operations));
    History { transactions: all.collect(), ..History::default() }
}

fn at_snapshot(mut history: History) -> History {
    history.transactions.iter_mut().for_each(|one| one.isolation = Isolation::Snapshot);
    history
}

fn cycle(class: Class) -> Kind {
    Kind::Cycle { class, phantom: false, realtime: false }
}

fn realtime(class: Class) -> Kind {
    Kind::Cycle { class, phantom: false, realtime: true }
}

#[track_caller]
fn has(history: &History, kind: Kind) {
    let verdict = judge(history);
    assert!(verdict.has(kind), "no {kind}: {verdict}");
    let explained =
        verdict.anomalies.iter().any(|one| one.kind == kind && !one.explanation.is_empty());
    assert!(explained, "{verdict}");
}

/// Asserts that the verdict has this kind of anomaly and no other.
#[track_caller]
fn has_only(history: &History, kind: Kind) {
    has(history, kind);
    let verdict = judge(history);
    assert_eq!(verdict.counts.len(), 1, "{verdict}");
}

#[track_caller]
fn is_clean(history: &History) {
    let verdict = judge(history);
    assert!(verdict.is_clean(), "{verdict}");
}

#[test]
fn nothing_is_clean() {
    is_clean(&History::default());
}

#[test]
fn one_after_the_other_is_clean() {
    is_clean(&in_turn(vec![
        vec![append(1, 10)],
        vec![read(1, &[10]), append(1, 11), read(1, &[10, 11]), append(2, 20)],
        vec![append(2, 21), append(2, 22)],
        vec![read(1, &[10, 11]), read(2, &[20, 21, 22]), read(3, &[])],
    ]));
}

#[test]
fn g0_is_two_lists_written_in_opposite_orders() {
    let history = beside(vec![
        vec![append(1, 10), append(2, 20)],
        vec![append(1, 11), append(2, 21)],
        vec![read(1, &[10, 11])],
        vec![read(2, &[21, 20])],
    ]);
    has_only(&history, cycle(Class::G0));
    has_only(&at_snapshot(history), cycle(Class::G0));
}

#[test]
fn g1a_is_a_read_of_what_was_rolled_back() {
    let mut history = beside(vec![vec![append(1, 10)], vec![read(1, &[10])]]);
    is_clean(&history);
    history.transactions[0].outcome = Outcome::RolledBack;
    has_only(&history, Kind::AbortedRead);
    // The commit was never answered: it took place, because its append was seen.
    history.transactions[0].outcome = Outcome::Unknown;
    is_clean(&history);
}

#[test]
fn g1a_is_a_read_of_what_a_savepoint_took_back() {
    let taken_back = vec![
        append(1, 10),
        append(1, 11),
        read(1, &[10, 11]),
        Operation::RollBack { to: 1 },
        read(1, &[10]),
        append(1, 12),
    ];
    is_clean(&in_turn(vec![taken_back.clone(), vec![read(1, &[10, 12])]]));
    has(&in_turn(vec![taken_back, vec![read(1, &[10, 11, 12])]]), Kind::AbortedRead);
}

#[test]
fn g1b_is_a_read_of_a_part_of_a_transaction() {
    let writer = vec![append(1, 10), append(1, 11)];
    has(&beside(vec![writer.clone(), vec![read(1, &[10])]]), Kind::IntermediateRead);
    is_clean(&beside(vec![writer.clone(), vec![read(1, &[10, 11])]]));
    is_clean(&beside(vec![writer, vec![read(1, &[])]]));
}

#[test]
fn g1c_is_two_that_read_from_each_other() {
    let history =
        beside(vec![vec![append(1, 10), read(2, &[20])], vec![append(2, 20), read(1, &[10])]]);
    has_only(&history, cycle(Class::G1c));
    has_only(&at_snapshot(history), cycle(Class::G1c));
}

#[test]
fn g_single_is_one_half_of_a_transaction() {
    let history =
        beside(vec![vec![append(1, 10), append(2, 20)], vec![read(1, &[10]), read(2, &[])]]);
    has_only(&history, cycle(Class::GSingle));
    has_only(&at_snapshot(history), cycle(Class::GSingle));
}

#[test]
fn a_lost_update_is_a_g_single() {
    // Both transactions read the list as it was, and the second overwrote the first.
    let history = beside(vec![
        vec![read(1, &[]), append(1, 10)],
        vec![read(1, &[]), append(1, 11)],
        vec![read(1, &[10, 11])],
    ]);
    has_only(&at_snapshot(history), cycle(Class::GSingle));
}

fn skew(by: By) -> History {
    beside(vec![vec![read_by(by, 1, &[]), append(2, 20)], vec![read_by(by, 2, &[]), append(1, 10)]])
}

#[test]
fn a_write_skew_is_a_g2_that_snapshot_isolation_allows() {
    has_only(&skew(By::Row), cycle(Class::G2));
    is_clean(&at_snapshot(skew(By::Row)));
}

#[test]
fn a_write_skew_by_ranges_is_a_g2_with_phantoms() {
    let kind = Kind::Cycle { class: Class::G2, phantom: true, realtime: false };
    has_only(&skew(By::Range), kind);
    is_clean(&at_snapshot(skew(By::Range)));
}

#[test]
fn a_cycle_is_allowed_if_it_turns_at_one_at_snapshot_isolation() {
    for serializable in 0..2 {
        let mut history = at_snapshot(skew(By::Row));
        history.transactions[serializable].isolation = Isolation::Serializable;
        // The reads of the other transaction may be older than its commit.
        is_clean(&history);
    }
}

#[test]
fn two_replaced_reads_that_are_no_neighbours_are_forbidden_at_snapshot_isolation() {
    // a rw b wr c rw d wr a: snapshots of c and a differ in which of two writers they see.
    let history = at_snapshot(beside(vec![
        vec![append(1, 10)],
        vec![append(2, 20)],
        vec![read(1, &[10]), read(2, &[])],
        vec![read(1, &[]), read(2, &[20])],
    ]));
    has_only(&history, cycle(Class::G2));
}

#[test]
fn a_read_only_transaction_can_close_a_cycle_that_snapshot_isolation_allows() {
    // Fekete, O'Neil and O'Neil 2004: the reader sees the deposit, but not the withdrawal.
    let history = |isolation| {
        let mut history = beside(vec![
            vec![read(1, &[]), read(2, &[]), append(1, 10)],
            vec![read(1, &[]), read(2, &[]), append(2, 20)],
            vec![read(1, &[]), read(2, &[20])],
        ]);
        history.transactions.iter_mut().for_each(|one| one.isolation = isolation);
        history
    };
    is_clean(&history(Isolation::Snapshot));
    has_only(&history(Isolation::Serializable), cycle(Class::G2));
}

#[test]
fn what_was_acknowledged_before_one_began_is_seen_by_it() {
    let stale = |read_it: &[u64]| {
        in_turn(vec![
            vec![append(1, 10)],
            vec![append(1, 11)],
            vec![read(1, read_it)],
            vec![read(1, &[10, 11])],
        ])
    };
    has_only(&stale(&[10]), realtime(Class::GSingle));
    has_only(&at_snapshot(stale(&[10])), realtime(Class::GSingle));
    is_clean(&stale(&[10, 11]));
}

#[test]
fn a_commit_is_not_ordered_before_one_that_had_ended() {
    let mut history =
        in_turn(vec![vec![append(1, 11)], vec![append(1, 10)], vec![read(1, &[10, 11])]]);
    has_only(&history, realtime(Class::G0));
    // Transactions that overlap in time may commit in either order.
    history.transactions[1].began = 0;
    is_clean(&history);
}

#[test]
fn an_acknowledged_append_that_no_later_read_has_is_lost() {
    let history = in_turn(vec![vec![append(1, 10)], vec![append(1, 11)], vec![read(1, &[10])]]);
    has(&history, Kind::LostAppend);
    let mut unanswered = history;
    unanswered.transactions[1].outcome = Outcome::Unknown;
    is_clean(&unanswered);
    // An element that was seen once, and then never again.
    let mut gone = in_turn(vec![
        vec![append(1, 10)],
        vec![read(1, &[10])],
        vec![read(1, &[])],
        vec![read(1, &[])],
    ]);
    has_only(&gone, realtime(Class::GSingle));
    gone.transactions[0].ended = 15;
    has(&gone, Kind::LostAppend);
}

#[test]
fn an_element_is_there_once() {
    has_only(&in_turn(vec![vec![append(1, 10)], vec![read(1, &[10, 10])]]), Kind::Duplicate);
}

#[test]
fn an_element_that_nobody_appended_is_found() {
    has_only(&in_turn(vec![vec![append(1, 10)], vec![read(1, &[10, 77])]]), Kind::Unwritten);
}

#[test]
fn reads_in_different_orders_are_incompatible() {
    let writers = || vec![vec![append(1, 10)], vec![append(1, 11)]];
    let with = |reads: Vec<Vec<Operation>>| beside(writers().into_iter().chain(reads).collect());
    has(&with(vec![vec![read(1, &[10, 11])], vec![read(1, &[11, 10])]]), Kind::IncompatibleOrder);
    has(&with(vec![vec![read(1, &[10, 11])], vec![read(1, &[11])]]), Kind::IncompatibleOrder);
    is_clean(&with(vec![vec![read(1, &[10, 11])], vec![read(1, &[10])]]));
}

#[test]
fn a_range_with_a_hole_is_a_phantom() {
    // Only the second half of the list: the store did this when it silently omitted records of a
    // range.
    let history = in_turn(vec![
        vec![append(1, 10)],
        vec![append(1, 11)],
        vec![read_by(By::Range, 1, &[11])],
        vec![read_by(By::Range, 1, &[10, 11])],
    ]);
    has(&history, Kind::IncompatibleOrder);
    has(&history, Kind::Cycle { class: Class::GSingle, phantom: true, realtime: false });
}

#[test]
fn a_transaction_finds_its_own() {
    has_only(&in_turn(vec![vec![append(1, 10), read(1, &[])]]), Kind::Internal);
    let other = vec![append(1, 10)];
    let twice = |second: &[u64]| beside(vec![other.clone(), vec![read(1, &[]), read(1, second)]]);
    has(&twice(&[10]), Kind::Internal);
    is_clean(&twice(&[]));
}

#[test]
fn what_was_durable_survives_a_crash() {
    let history = |durable, recovered: &[u64]| {
        let mut history = in_turn(vec![vec![append(1, 10)], vec![append(1, 11)]]);
        history.transactions[1].durable = durable;
        let elements = recovered.iter().copied().map(Element).collect();
        history.recovered = Some([(List(1), elements)].into());
        history
    };
    is_clean(&history(true, &[10, 11]));
    has(&history(true, &[10]), Kind::LostAppend);
    is_clean(&history(false, &[10]));
    is_clean(&history(false, &[10, 11]));
    has(&history(false, &[]), Kind::LostAppend);
}

#[test]
fn a_commit_survives_a_crash_as_a_whole_and_with_all_before_it() {
    let mut history = in_turn(vec![vec![append(1, 10), append(2, 20)], vec![append(2, 21)]]);
    history.transactions.iter_mut().for_each(|one| one.durable = false);
    let state = |one: &[u64], two: &[u64]| {
        let list = |elements: &[u64]| elements.iter().copied().map(Element).collect();
        Some([(List(1), list(one)), (List(2), list(two))].into())
    };
    history.recovered = state(&[10], &[20]);
    is_clean(&history);
    history.recovered = state(&[10], &[]);
    has(&history, cycle(Class::GSingle));
    history.recovered = state(&[], &[20, 21]);
    has(&history, cycle(Class::GSingle));
}

#[test]
fn what_a_durable_reader_has_read_survives_a_crash_too() {
    let mut history = in_turn(vec![vec![append(1, 10)], vec![append(2, 20)], vec![read(1, &[10])]]);
    history.transactions[0].durable = false;
    history.transactions[1].durable = false;
    history.recovered = Some([(List(1), vec![Element(10)])].into());
    // The reader had not read the lost append, although that was acknowledged before the reader
    // began.
    is_clean(&history);
    history.recovered = Some([].into());
    has_only(&history, realtime(Class::GSingle));
}

#[test]
fn what_was_there_in_the_beginning_stays() {
    let mut history =
        in_turn(vec![vec![read(1, &[1, 2]), append(1, 10)], vec![read(1, &[1, 2, 10])]]);
    history.base = [(List(1), vec![Element(1), Element(2)])].into();
    is_clean(&history);
    history.transactions[1].operations = vec![read(1, &[1])];
    has(&history, Kind::IntermediateRead);
}
