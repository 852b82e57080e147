use std::future::poll_fn;
use std::sync::mpsc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::Options;

fn is_readable<T>(queue: &CompletionQueue<T>) -> bool {
    let mut fds = [PollFd::new(queue, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

/// A future whose result comes from a channel, and the waker that it has left.
fn receiver<T: Send + 'static>(
    wakers: mpsc::Sender<Waker>,
) -> (mpsc::Sender<T>, impl Future<Output = T> + Send) {
    let (sender, receiver) = mpsc::channel();
    let future = poll_fn(move |context| match receiver.try_recv() {
        Ok(result) => Poll::Ready(result),
        Err(_) => {
            wakers.send(context.waker().clone()).unwrap();
            Poll::Pending
        }
    });
    (sender, future)
}

#[test]
fn a_result_at_once_is_returned_and_not_queued() {
    let queue = CompletionQueue::new().unwrap();
    assert_eq!(queue.start(async { 7 }), Some(7));
    assert_eq!(queue.in_flight(), 0);
    assert!(!is_readable(&queue));
    // Nothing is in flight, so there is nothing to wait for.
    assert_eq!(queue.wait(&mut Vec::new(), 1, 1, None), 0);
}

#[test]
fn the_descriptor_is_readable_while_there_are_results() {
    let queue = CompletionQueue::new().unwrap();
    let (wakers, woken) = mpsc::channel();
    let (first, future) = receiver(wakers.clone());
    assert_eq!(queue.start(future), None);
    let (second, future) = receiver(wakers);
    assert_eq!(queue.start(future), None);
    assert!(!is_readable(&queue));
    let mut results = Vec::new();
    // A wake-up without a result is no completion.
    woken.recv().unwrap().wake();
    assert!(is_readable(&queue));
    assert_eq!(queue.take(&mut results, 9), 0);
    assert!(!is_readable(&queue));
    let [second_waker, first_waker] = [woken.recv().unwrap(), woken.recv().unwrap()];
    second.send(2).unwrap();
    second_waker.wake_by_ref();
    second_waker.wake();
    first.send(1).unwrap();
    first_waker.wake();
    assert_eq!(queue.take(&mut results, 1), 1);
    assert!(is_readable(&queue));
    assert_eq!(queue.in_flight(), 1);
    assert_eq!(queue.take(&mut results, 9), 1);
    assert!(!is_readable(&queue));
    assert_eq!((results, queue.in_flight()), (vec![2, 1], 0));
}

#[test]
fn without_notifications_the_descriptor_is_silent() {
    let queue = CompletionQueue::new().unwrap();
    queue.set_notifications(false);
    queue.completer().complete(1);
    assert!(!is_readable(&queue));
    // Switched on, they tell of what came before.
    queue.set_notifications(true);
    assert!(is_readable(&queue));
    assert_eq!(queue.take(&mut Vec::new(), 1), 1);
    assert!(!is_readable(&queue));
}

#[test]
fn waiting_ends_with_results_with_time_or_with_nothing_in_flight() {
    let queue = CompletionQueue::new().unwrap();
    let (slow, lost) = (queue.completer(), queue.completer());
    let mut results = Vec::new();
    assert_eq!(queue.wait(&mut results, 1, 1, Some(Duration::from_millis(1))), 0);
    let thread = std::thread::spawn(move || {
        slow.complete(1);
        drop(lost);
    });
    // Two are waited for, and one of them is lost.
    assert_eq!(queue.wait(&mut results, 2, 9, None), 1);
    thread.join().unwrap();
    assert_eq!((results, queue.in_flight()), (vec![1], 0));
}

#[test]
fn a_panic_of_a_future_loses_that_operation_alone() {
    let queue = CompletionQueue::<u32>::new().unwrap();
    let (wakers, woken) = mpsc::channel();
    let (sender, future) = receiver(wakers);
    let panics = async move {
        let () = future.await;
        panic!("planted");
    };
    assert_eq!(queue.start(panics), None);
    queue.completer().complete(5);
    sender.send(()).unwrap();
    woken.recv().unwrap().wake();
    let mut results = Vec::new();
    let taken = catch_unwind(AssertUnwindSafe(|| queue.take(&mut results, 9)));
    assert!(taken.is_err());
    assert_eq!((results, queue.in_flight()), (vec![5], 0));
}

#[test]
fn a_dropped_queue_drops_futures_when_they_are_woken() {
    let queue = CompletionQueue::new().unwrap();
    let (wakers, woken) = mpsc::channel();
    let (sender, future) = receiver::<u32>(wakers);
    queue.start(future);
    let completer = queue.completer();
    drop(queue);
    completer.complete(1);
    woken.recv().unwrap().wake();
    assert!(sender.send(1).is_err(), "the future still has its receiver");
}

/// A loop that switches notifications off while it is busy, and sleeps on the descriptor alone.
#[test]
fn a_sleep_on_the_descriptor_misses_nothing() {
    const OPERATIONS: usize = 4000;
    let queue = CompletionQueue::new().unwrap();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (wakers, woken) = mpsc::channel::<(mpsc::Sender<usize>, Waker)>();
            let finish = move || {
                for (number, (sender, waker)) in woken.iter().enumerate() {
                    sender.send(number).unwrap();
                    waker.wake();
                }
            };
            (wakers, std::thread::spawn(finish))
        })
        .collect();
    let (mut started, mut results) = (0, Vec::new());
    while results.len() < OPERATIONS {
        queue.set_notifications(false);
        while started < OPERATIONS && queue.in_flight() < 8 {
            let (sender, receiver) = mpsc::channel();
            let wakers = threads[started % 2].0.clone();
            let mut sender = Some(sender);
            let wait = poll_fn(move |context| match receiver.try_recv() {
                Ok(result) => Poll::Ready(result),
                Err(_) => {
                    if let Some(sender) = sender.take() {
                        wakers.send((sender, context.waker().clone())).unwrap();
                    }
                    Poll::Pending
                }
            });
            assert_eq!(queue.start(wait), None);
            started += 1;
        }
        while queue.take(&mut results, 3) > 0 {}
        queue.set_notifications(true);
        if queue.take(&mut results, 3) == 0 && queue.in_flight() > 0 {
            let mut fds = [PollFd::new(&queue, PollFlags::IN)];
            let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
            assert_eq!(poll(&mut fds, Some(&minute)).unwrap(), 1, "a wake-up was lost");
        }
    }
    assert_eq!((results.len(), queue.in_flight()), (OPERATIONS, 0));
    for (wakers, thread) in threads {
        drop(wakers);
        thread.join().unwrap();
    }
}

#[test]
fn calls_of_a_store() {
    let store = Options::new("ram:size=16MiB").memory_bytes(4 << 20).workers(1).open().unwrap();
    let table = store.table("t").unwrap();
    let queue = CompletionQueue::new().unwrap();
    let mut results = Vec::new();
    for key in 0..100u8 {
        let table = table.clone();
        let put = async move { table.put_async(&[key], &[key]).await.map(|_| None) };
        results.extend(queue.start(put));
    }
    let missing = 100 - results.len();
    assert_eq!(queue.wait(&mut results, missing, usize::MAX, None), missing);
    assert!(results.drain(..).all(|result| matches!(result, Ok(None))));
    let of = table.clone();
    let found = queue.start(async move { of.get_async(&[7]).await });
    assert_eq!(found.unwrap().unwrap(), Some(vec![7]));
    let mut transaction = store.begin();
    transaction.put(&table, b"k", b"v").unwrap();
    let commit = async move { transaction.commit_async().await.map(|_| None) };
    results.extend(queue.start(commit));
    let missing = 1 - results.len();
    queue.wait(&mut results, missing, 1, None);
    assert_eq!(results.pop().unwrap().unwrap(), None);
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    drop(table);
    store.close().unwrap();
}
