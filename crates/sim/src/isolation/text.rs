//! A history as lines of text, which survives when the process that writes it is killed.
//!
//! ```text
//! s 1:5,6 2:7                      the lists when it had opened the store
//! t 0 3 12 P d ? 0 r1:5,6 a1:8     transaction 0 of process 3, begun at 12, serializable (else S), durable (else -), not answered
//! e 0 C 15                         it was acknowledged at 15 (R: rolled back)
//! ```
//!
//! The letters of operations: `a` appends, `r` reads a row, `R` reads a range, and `u` undoes the
//! operations from a given one on.

use std::fmt::Write as _;

use qpair_isolation::{By, Element, Isolation, List, Operation, Outcome, State, Transaction};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    State(State),
    Asks(usize, Transaction),
    Ends(usize, Outcome, u64),
}

fn letter(outcome: Outcome) -> char {
    match outcome {
        Outcome::Committed => 'C',
        Outcome::RolledBack => 'R',
        Outcome::Unknown => '?',
    }
}

fn outcome(letter: &str) -> Option<Outcome> {
    [Outcome::Committed, Outcome::RolledBack, Outcome::Unknown]
        .into_iter()
        .find(|outcome| letter.chars().eq([self::letter(*outcome)]))
}

fn put_list(text: &mut String, list: List, elements: &[Element]) {
    // Writing to a string does not fail.
    let _ = write!(text, "{}:", list.0);
    for (number, element) in elements.iter().enumerate() {
        let _ = write!(text, "{}{}", if number > 0 { "," } else { "" }, element.0);
    }
}

fn list(text: &str) -> Option<(List, Vec<Element>)> {
    let (list, elements) = text.split_once(':')?;
    let elements = match elements {
        "" => Vec::new(),
        some => some.split(',').map(|one| one.parse().ok().map(Element)).collect::<Option<_>>()?,
    };
    Some((List(list.parse().ok()?), elements))
}

fn put_operation(text: &mut String, operation: &Operation) {
    match operation {
        Operation::Append { list, element } => {
            text.push('a');
            put_list(text, *list, &[*element]);
        }
        Operation::Read { list, elements, by } => {
            text.push(if *by == By::Row { 'r' } else { 'R' });
            put_list(text, *list, elements);
        }
        Operation::RollBack { to } => {
            let _ = write!(text, "u{to}");
        }
    }
}

fn operation(text: &str) -> Option<Operation> {
    let (verb, rest) = text.split_at_checked(1)?;
    if verb == "u" {
        return Some(Operation::RollBack { to: rest.parse().ok()? });
    }
    let (list, elements) = list(rest)?;
    Some(match verb {
        "a" => Operation::Append { list, element: *elements.first()? },
        "r" => Operation::Read { list, elements, by: By::Row },
        "R" => Operation::Read { list, elements, by: By::Range },
        _ => return None,
    })
}

impl Line {
    /// Returns the line with its end.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        match self {
            Self::State(state) => {
                text.push('s');
                for (list, elements) in state {
                    text.push(' ');
                    put_list(&mut text, *list, elements);
                }
            }
            Self::Asks(number, transaction) => {
                let Transaction { process, began, ended, .. } = transaction;
                let isolation =
                    if transaction.isolation == Isolation::Serializable { 'P' } else { 'S' };
                let durable = if transaction.durable { 'd' } else { '-' };
                let outcome = letter(transaction.outcome);
                let _ = write!(
                    text,
                    "t {number} {process} {began} {isolation} {durable} {outcome} {ended}"
                );
                for operation in &transaction.operations {
                    text.push(' ');
                    put_operation(&mut text, operation);
                }
            }
            Self::Ends(number, outcome, ended) => {
                let _ = write!(text, "e {number} {} {ended}", letter(*outcome));
            }
        }
        text.push('\n');
        text
    }

    /// Parses a line without its end.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        match words.next()? {
            "s" => Some(Self::State(words.map(list).collect::<Option<_>>()?)),
            "e" => {
                let number = words.next()?.parse().ok()?;
                Some(Self::Ends(number, outcome(words.next()?)?, words.next()?.parse().ok()?))
            }
            "t" => {
                let number = words.next()?.parse().ok()?;
                let (process, began) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let isolation = match words.next()? {
                    "P" => Isolation::Serializable,
                    _ => Isolation::Snapshot,
                };
                let (durable, outcome) = (words.next()? == "d", outcome(words.next()?)?);
                let ended = words.next()?.parse().ok()?;
                let operations = words.map(operation).collect::<Option<_>>()?;
                let transaction =
                    Transaction { process, began, ended, operations, isolation, outcome, durable };
                Some(Self::Asks(number, transaction))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_as_it_was_written() {
        let transaction = Transaction {
            process: 3,
            began: 12,
            ended: 0,
            operations: vec![
                Operation::Read {
                    list: List(1),
                    elements: vec![Element(5), Element(6)],
                    by: By::Row,
                },
                Operation::Read { list: List(2), elements: vec![], by: By::Range },
                Operation::Append { list: List(1), element: Element(8) },
                Operation::RollBack { to: 2 },
            ],
            isolation: Isolation::Serializable,
            outcome: Outcome::Unknown,
            durable: true,
        };
        let state = State::from([(List(1), vec![Element(5), Element(6)]), (List(9), vec![])]);
        for line in [
            Line::State(State::new()),
            Line::State(state),
            Line::Asks(7, transaction),
            Line::Ends(7, Outcome::Committed, 15),
            Line::Ends(8, Outcome::RolledBack, 16),
        ] {
            let text = line.text();
            assert_eq!(Line::parse(text.trim_end_matches('\n')), Some(line), "{text}");
        }
        assert_eq!(Line::parse("t 7 3 12 P d"), None);
        assert_eq!(Line::parse("e 7"), None);
    }
}
