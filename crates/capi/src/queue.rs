//! Queues of completions, and the asynchronous calls of tables and transactions.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use qpair::completion::CompletionQueue;

use crate::batch::{self, qpair_batch};
use crate::call::{bytes, call, needed, set, size_at, write_sized};
use crate::completion::{
    Finished, Outcome, QPAIR_OPERATION_COMMIT, QPAIR_OPERATION_DELETE, QPAIR_OPERATION_GET,
    QPAIR_OPERATION_NONE, QPAIR_OPERATION_PUT, QPAIR_OPERATION_WRITE, qpair_completion,
};
use crate::error::{Failure, qpair_error};
use crate::handle::Handles;
use crate::store::{self, qpair_store};
use crate::table::{self, qpair_table};
use crate::transaction::{self, qpair_transaction};

static QUEUES: Handles<CompletionQueue<Finished>> = Handles::new(10, "qpair_queue");

/// A queue of asynchronous calls and their completions, with a descriptor to wait for. Any number
/// of threads may use it at once. It belongs to no store.
pub struct qpair_queue {
    _opaque: [u8; 0],
}

/// Returns a clone of a queue.
pub(crate) fn get(queue: *mut qpair_queue) -> Result<CompletionQueue<Finished>, Failure> {
    QUEUES.with(queue, |queue| Ok(queue.clone()))
}

/// Creates a queue, with notifications switched on.
///
/// Errors: `QPAIR_LIMIT` if the process can have no more descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_queue_new(
    queue: *mut *mut qpair_queue,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            needed(queue, "queue")?;
            set(queue, QUEUES.insert(CompletionQueue::new()?)?);
            Ok(())
        })
    }
}

/// Closes a queue. Calls under way continue, and their completions are lost; buffers of reads are
/// no longer written. Does nothing if `queue` is null.
///
/// Errors: `QPAIR_MISUSE` if it was closed before; `QPAIR_BUSY` if another thread is in a call with
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_queue_close(
    queue: *mut qpair_queue,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || match queue.is_null() {
            true => Ok(()),
            false => QUEUES.remove(queue, |_| Ok(())).map(drop),
        })
    }
}

/// Stores the queue's descriptor, an eventfd that stays the library's. It is readable while
/// completions can be taken and notifications are on. Wait for it with poll(2) or epoll(7), and do
/// not read it. It may be readable without a completion.
///
/// Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_queue_descriptor(
    queue: *mut qpair_queue,
    descriptor: *mut c_int,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            needed(descriptor, "descriptor")?;
            set(descriptor, QUEUES.with(queue, |queue| Ok(queue.as_fd().as_raw_fd()))?);
            Ok(())
        })
    }
}

/// Switches notifications by the descriptor on or off. Without them a loop that takes completions
/// anyway saves system calls. The rule: switch them off; take until there are none; switch them on;
/// take once more; wait for the descriptor only if there was nothing.
///
/// Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_queue_set_notifications(
    queue: *mut qpair_queue,
    on: bool,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || {
            QUEUES.with(queue, |queue| {
                queue.set_notifications(on);
                Ok(())
            })
        })
    }
}

/// Stores the number of calls whose completions were not taken yet.
///
/// Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_queue_in_flight(
    queue: *mut qpair_queue,
    calls: *mut usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            needed(calls, "calls")?;
            set(calls, QUEUES.with(queue, |queue| Ok(queue.in_flight()))?);
            Ok(())
        })
    }
}

/// Takes up to `max` completions without waiting, stores them in the array `completions`, and
/// stores their number in `*taken`. Set the `size` of the first one.
///
/// Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`; those of the calls are in their completions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_queue_take(
    queue: *mut qpair_queue,
    completions: *mut qpair_completion,
    max: usize,
    taken: *mut usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: by the caller, as this function's.
    unsafe { qpair_queue_wait(queue, completions, 0, max, 0, taken, error) }
}

/// Takes at least `min` and up to `max` completions like `qpair_queue_take`. Waits for them, but no
/// longer than `timeout_us` microseconds (-1: without limit), and not for more calls than are in
/// flight.
///
/// Errors: as `qpair_queue_take`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_queue_wait(
    queue: *mut qpair_queue,
    completions: *mut qpair_completion,
    min: usize,
    max: usize,
    timeout_us: i64,
    taken: *mut usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rules 1 and 2 for the results, rule 4 for reads.
    unsafe {
        call(error, || {
            needed(taken, "taken")?;
            set(taken, 0);
            let size = size_at(completions)?;
            let timeout = u64::try_from(timeout_us).ok().map(Duration::from_micros);
            let mut results = Vec::new();
            QUEUES.with(queue, |queue| {
                match min {
                    0 => queue.take(&mut results, max),
                    _ => queue.wait(&mut results, min, max, timeout),
                };
                Ok(())
            })?;
            set(taken, results.len());
            let mut at = completions.cast::<u8>();
            for finished in results {
                let completion = finished.into_completion(size);
                write_sized(at.cast(), size, &completion);
                at = at.wrapping_add(size);
            }
            Ok(())
        })
    }
}

/// Ends a call at once: in `now`, if the caller has given it, or else in the queue.
///
/// # Safety
/// `now` follows rule 2 of the crate, and has its size set.
unsafe fn at_once(
    queue: &CompletionQueue<Finished>,
    now: *mut qpair_completion,
    finished: Finished,
) -> Result<(), Failure> {
    if now.is_null() {
        queue.completer().complete(finished);
        return Ok(());
    }
    // SAFETY: by the caller; no read of a device ends here.
    unsafe {
        let size = size_at(now)?;
        write_sized(now, size, &finished.into_completion(size));
    }
    Ok(())
}

/// Marks `now` as a call that has not ended.
///
/// # Safety
/// `now` follows rules 1 and 2 of the crate.
unsafe fn not_yet(now: *mut qpair_completion) -> Result<(), Failure> {
    if !now.is_null() {
        // SAFETY: by the caller; the smallest size includes the operation.
        unsafe {
            size_at(now)?;
            (&raw mut (*now).operation).write(QPAIR_OPERATION_NONE);
        }
    }
    Ok(())
}

/// Begins to look a key up; the completion has the value. If `now` is not null and the value is in
/// memory, the call ends at once: its completion is stored in `*now` and does not come by the
/// queue. Otherwise the operation of `*now` is `QPAIR_OPERATION_NONE`.
///
/// Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`; in the completion those of `qpair_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_get_async(
    queue: *mut qpair_queue,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    user_data: u64,
    now: *mut qpair_completion,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the key, rules 1 and 2 for the results.
    unsafe {
        call(error, || {
            not_yet(now)?;
            let key = bytes(key, key_len, "key")?;
            let finish = move |value: Result<_, qpair::Error>| Finished {
                user_data,
                operation: QPAIR_OPERATION_GET,
                outcome: value.map(Outcome::Value).map_err(Failure::from),
            };
            QUEUES.with(queue, |queue| {
                table::with(table, |table| {
                    let mut value = Vec::new();
                    let ended = match table.try_get_into(key, &mut value) {
                        Ok(None) => {
                            let (table, key) = (table.clone(), key.to_vec());
                            let get = async move { finish(table.get_async(&key).await) };
                            queue.start(get)
                        }
                        Ok(Some(found)) => Some(finish(Ok(found.then_some(value)))),
                        Err(error) => Some(finish(Err(error))),
                    };
                    ended.map_or(Ok(()), |finished| at_once(queue, now, finished))
                })
            })
        })
    }
}

/// Begins to insert or replace a record. Key and value are copied before the call returns.
///
/// Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`; in the completion those of `qpair_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_put_async(
    queue: *mut qpair_queue,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    user_data: u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for key and value, rule 2 for `error`.
    unsafe {
        call(error, || {
            let key = bytes(key, key_len, "key")?.to_vec();
            let value = bytes(value, value_len, "value")?.to_vec();
            let table = table::with(table, |table| Ok(table.clone()))?;
            start(queue, user_data, QPAIR_OPERATION_PUT, async move {
                Ok(Outcome::Flag(table.put_async(&key, &value).await?))
            })
        })
    }
}

/// Begins to remove a record.
///
/// Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`; in the completion those of `qpair_delete`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_delete_async(
    queue: *mut qpair_queue,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    user_data: u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the key, rule 2 for `error`.
    unsafe {
        call(error, || {
            let key = bytes(key, key_len, "key")?.to_vec();
            let table = table::with(table, |table| Ok(table.clone()))?;
            start(queue, user_data, QPAIR_OPERATION_DELETE, async move {
                Ok(Outcome::Flag(table.delete_async(&key).await?))
            })
        })
    }
}

/// Begins to make all changes of a batch. The batch may be used again when the call returns.
///
/// Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`; in the completion those of `qpair_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_write_async(
    queue: *mut qpair_queue,
    store: *mut qpair_store,
    batch: *mut qpair_batch,
    user_data: u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || {
            let changes = batch::copy(batch)?;
            let store = store::with(store, |store| Ok(store.clone()))?;
            start(queue, user_data, QPAIR_OPERATION_WRITE, async move {
                let task = store.task();
                let written = store.spawn(move || async move { task.write(&changes).await });
                written.await??;
                Ok(Outcome::Nothing)
            })
        })
    }
}

/// Begins to commit a transaction. Its handle is closed when the call returns `QPAIR_OK`.
///
/// Errors: `QPAIR_MISUSE` also within the function of `qpair_transact`, `QPAIR_BUSY`,
/// `QPAIR_FORKED`; in the completion those of `qpair_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_commit_async(
    queue: *mut qpair_queue,
    transaction: *mut qpair_transaction,
    user_data: u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || {
            // Before the transaction is taken, so that a wrong queue leaves it open.
            get(queue)?;
            let transaction = transaction::take(transaction)?;
            start(queue, user_data, QPAIR_OPERATION_COMMIT, async move {
                Ok(Outcome::Number(transaction.commit_async().await?.timestamp()))
            })
        })
    }
}

/// Starts a call whose completion always comes by the queue.
fn start(
    queue: *mut qpair_queue,
    user_data: u64,
    operation: u32,
    run: impl Future<Output = Result<Outcome, qpair::Error>> + Send + 'static,
) -> Result<(), Failure> {
    QUEUES.with(queue, |queue| {
        let finished = queue.start(async move {
            let outcome = run.await.map_err(Failure::from);
            Finished { user_data, operation, outcome }
        });
        if let Some(finished) = finished {
            queue.completer().complete(finished);
        }
        Ok(())
    })
}

pub(crate) fn count() -> usize {
    QUEUES.count()
}
