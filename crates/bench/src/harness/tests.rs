//! Clients on threads: the counts, and the reasons for which a run ends.

use std::future::Future;

use qpair::{Error, ErrorKind, Result};

use super::*;
use crate::kv::{Clients, KvStatistics, System, start_threads};
use crate::progress::{Progress, Silent};

struct Threads;

impl System for Threads {
    type Session = ();

    fn start<F, Fut, T>(&self, clients: usize, client: F) -> Result<Clients<T>>
    where
        F: Fn(usize, ()) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T>> + 'static,
        T: Send + 'static,
    {
        start_threads(clients, || Ok(()), client)
    }

    fn statistics(&self) -> Result<KvStatistics> {
        Ok(KvStatistics::default())
    }
}

/// A client whose every third attempt ends with a conflict, or whose only attempt ends with this
/// error.
struct Third {
    left: u32,
    attempts: u32,
    error: Option<ErrorKind>,
    open: bool,
}

impl Third {
    fn new(left: u32, error: Option<ErrorKind>) -> Self {
        Self { left, attempts: 0, error, open: false }
    }
}

impl Client for Third {
    type Request = u32;

    fn draw(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        Some(self.left)
    }

    async fn attempt(&mut self, left: &u32) -> Result<Done> {
        assert!(!std::mem::replace(&mut self.open, true), "the last attempt was not rolled back");
        self.attempts += 1;
        match self.error {
            Some(kind) => Err(Error::new(kind, "as asked")),
            None if self.attempts.is_multiple_of(3) => {
                Err(Error::new(ErrorKind::Conflict, "another"))
            }
            None => {
                self.open = false;
                Ok(Done { kind: (*left % 2) as usize, weight: 10, rolled_back: *left == 0 })
            }
        }
    }

    async fn rollback(&mut self) -> Result<()> {
        self.open = false;
        Ok(())
    }
}

fn plan(clients: usize, seconds: Option<f64>) -> Plan {
    Plan { clients, kinds: 2, seconds, ..Plan::default() }
}

#[test]
fn each_request_counts_once_with_all_its_attempts() {
    let client = |_, ()| Third::new(100, None);
    let measured = measure(&Threads, &plan(3, None), client, &Silent).unwrap();
    assert_eq!((measured.requests(), measured.weight()), (300, 3000));
    assert_eq!([0, 1].map(|kind| measured.kinds[kind].count()), [150, 150]);
    assert_eq!([0, 1].map(|kind| measured.kinds[kind].rolled_back), [3, 0]);
    // Each client makes 149 attempts. Every third of them ends with a conflict, and repeats the
    // request before it.
    assert_eq!(measured.kinds.iter().map(|kind| kind.conflicts).sum::<u64>(), 3 * 49);
    assert_eq!(measured.kinds.iter().map(|kind| kind.retried).sum::<u64>(), 3 * 49);
}

#[test]
fn an_error_of_one_client_ends_all_and_a_conflict_cannot_go_on_forever() {
    for kind in [ErrorKind::Io, ErrorKind::Conflict] {
        let client = move |number, ()| Third::new(u32::MAX, (number == 1).then_some(kind));
        let error = measure(&Threads, &plan(3, None), client, &Silent).err().unwrap();
        assert_eq!(error.kind(), kind);
    }
}

#[test]
fn the_time_and_the_wish_to_stop_end_a_run() {
    struct Stop;
    impl Progress for Stop {
        fn begin(&self, _: &str, _: u64) {}
        fn at(&self, _: u64) {}
        fn end(&self) {}
        fn stop(&self) -> bool {
            true
        }
    }
    let client = |_, ()| Third::new(u32::MAX, None);
    // On a busy machine the clients may not run at all within a short time.
    let timed = |tries: u32| {
        measure(&Threads, &plan(2, Some(0.05 * f64::from(tries))), client, &Silent).unwrap()
    };
    assert!((1..100).any(|tries| timed(tries).requests() > 0));
    let error = measure(&Threads, &plan(2, None), client, &Stop).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[test]
fn a_warm_up_chooses_how_many_clients_run() {
    let client = |_, ()| Third::new(u32::MAX, None);
    let chosen = Plan { choose_for: Some(2), warm_up_s: 0.2, ..plan(8, Some(0.1)) };
    let measured = measure(&Threads, &chosen, client, &Silent).unwrap();
    assert!([2, 4, 8].contains(&measured.clients), "{}", measured.clients);
    // Without a warm-up there is nothing to choose by.
    let measured = measure(&Threads, &Plan { warm_up_s: 0.0, ..chosen }, client, &Silent).unwrap();
    assert_eq!(measured.clients, 8);
}
