//! Transactions.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use qpair::{Durability, Error, Isolation, Table, Transaction, TransactionOptions};

use crate::call::{Versioned, bytes, bytes_or_none, call, needed, read_sized_or_none, set, text};
use crate::error::{Failure, qpair_error};
use crate::handle::Handles;
use crate::store::{self, qpair_store};
use crate::table::{self, qpair_table};
use crate::value::{NO_RECORD, check_buffer, copy, lend, qpair_value};

static TRANSACTIONS: Handles<Open> = Handles::new(7, "qpair_transaction");

/// A transaction. It belongs to one thread at a time, and may move to another between calls.
pub struct qpair_transaction {
    _opaque: [u8; 0],
}

/// A transaction that C has a handle of.
pub(crate) struct Open {
    pub(crate) transaction: Transaction,
    /// Whether `qpair_transact` ends the transaction, so that its function must not.
    pub(crate) is_lent: bool,
    /// The error of the last call that failed.
    pub(crate) failed: Option<Error>,
}

/// An isolation: each transaction sees the commits before its first read, and a conflict is an
/// error for the later writer.
pub const QPAIR_ISOLATION_SNAPSHOT: u32 = 0;
/// An isolation: the outcome is that of transactions one after the other.
pub const QPAIR_ISOLATION_SERIALIZABLE: u32 = 1;

/// A durability: a commit that has returned survives power loss.
pub const QPAIR_DURABILITY_SYNC: u32 = 0;
/// A durability: the same, and commits wait a little for others, to be flushed together.
pub const QPAIR_DURABILITY_GROUP: u32 = 1;
/// A durability: a commit returns before it survives power loss.
pub const QPAIR_DURABILITY_ASYNC: u32 = 2;

/// The options of a transaction. Set `size` to `sizeof(struct qpair_transaction_options)` and all
/// other fields to 0, and then what should differ from the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qpair_transaction_options {
    /// The size of this struct in bytes.
    pub size: usize,
    /// `QPAIR_ISOLATION_SNAPSHOT` (default) or `QPAIR_ISOLATION_SERIALIZABLE`.
    pub isolation: u32,
    /// `QPAIR_DURABILITY_SYNC` (default), `QPAIR_DURABILITY_GROUP` or `QPAIR_DURABILITY_ASYNC`.
    pub durability: u32,
    /// 1 for a transaction that only reads; writes are refused then. 0 otherwise.
    pub read_only: u32,
    /// The number of times that `qpair_transact` runs a transaction that meets conflicts; 0 for
    /// 100, the default.
    pub attempts_max: u32,
    /// Limit on the memory for the transaction's writes, in bytes; 0 for the store's limit. Writes
    /// beyond it go to the device.
    pub write_set_bytes_max: u64,
    /// Microseconds that a call waits for a row that another transaction has locked; 0 for the
    /// store's limit.
    pub lock_timeout_us: u64,
    /// The name of the transaction in statistics and errors; may be null.
    pub name: *const c_char,
}

// SAFETY: `repr(C)`, begins with `size`, and has integers and a pointer only.
unsafe impl Versioned for qpair_transaction_options {
    const SIZE_MIN: usize = 48;
    const NAME: &'static str = "qpair_transaction_options";
}

/// # Safety
/// `options` follows rule 1 of the crate.
pub(crate) unsafe fn options_at(
    options: *const qpair_transaction_options,
) -> Result<TransactionOptions, Failure> {
    // SAFETY: rule 1, by the caller.
    let Some(given) = (unsafe { read_sized_or_none(options) })? else {
        return Ok(TransactionOptions::default());
    };
    let usual = TransactionOptions::default();
    Ok(TransactionOptions {
        isolation: match given.isolation {
            QPAIR_ISOLATION_SNAPSHOT => Isolation::Snapshot,
            QPAIR_ISOLATION_SERIALIZABLE => Isolation::Serializable,
            other => return Err(Failure::invalid(format!("there is no isolation {other}"))),
        },
        durability: match given.durability {
            QPAIR_DURABILITY_SYNC => Durability::Sync,
            QPAIR_DURABILITY_GROUP => Durability::Group,
            QPAIR_DURABILITY_ASYNC => Durability::Async,
            other => return Err(Failure::invalid(format!("there is no durability {other}"))),
        },
        read_only: given.read_only != 0,
        attempts_max: if given.attempts_max == 0 { usual.attempts_max } else { given.attempts_max },
        write_set_bytes_max: usize::try_from(given.write_set_bytes_max).unwrap_or(usize::MAX),
        lock_timeout: (given.lock_timeout_us > 0)
            .then(|| Duration::from_micros(given.lock_timeout_us)),
        name: match given.name.is_null() {
            true => None,
            // SAFETY: not null, and a text by rule 1.
            false => Some(unsafe { text(given.name, "name") }?.to_owned()),
        },
    })
}

pub(crate) fn insert(
    transaction: Transaction,
    is_lent: bool,
) -> Result<*mut qpair_transaction, Failure> {
    TRANSACTIONS.insert(Open { transaction, is_lent, failed: None })
}

/// Takes the transaction back that `qpair_transact` has lent to its function.
pub(crate) fn take_back(handle: *mut qpair_transaction) -> Result<Open, Failure> {
    TRANSACTIONS.remove_waiting(handle)
}

/// Ends the use of a handle, and returns the transaction.
pub(crate) fn take(handle: *mut qpair_transaction) -> Result<Transaction, Failure> {
    let open = TRANSACTIONS.remove(handle, |open| match open.is_lent {
        false => Ok(()),
        true => Err(Failure::misuse(
            "the transaction belongs to qpair_transact, which ends it when the function returns",
        )),
    })?;
    Ok(open.transaction)
}

/// Runs a call with a transaction and keeps its error, for `qpair_transact`.
pub(crate) fn with<R>(
    handle: *mut qpair_transaction,
    run: impl FnOnce(&mut Transaction) -> Result<R, Error>,
) -> Result<R, Failure> {
    TRANSACTIONS.with_mut(handle, |open| {
        let outcome = run(&mut open.transaction);
        if let Err(error) = &outcome {
            open.failed = Some(error.clone());
        }
        Ok(outcome?)
    })
}

fn with_table<R>(
    handle: *mut qpair_transaction,
    table: *mut qpair_table,
    run: impl FnOnce(&mut Transaction, &Table) -> Result<R, Error>,
) -> Result<R, Failure> {
    table::with(table, |table| with(handle, |transaction| run(transaction, table)))
}

/// Begins a transaction. End it with `qpair_commit` or `qpair_rollback`. `options` may be null.
/// `qpair_transact` runs a transaction again after a conflict, which is simpler.
///
/// Errors: `QPAIR_INVALID` for an option.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_begin(
    store: *mut qpair_store,
    options: *const qpair_transaction_options,
    transaction: *mut *mut qpair_transaction,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the options, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(transaction, "transaction")?;
            let options = options_at(options)?;
            let begun = store::with(store, |store| Ok(store.begin_with(&options)))?;
            set(transaction, insert(begun, false)?);
            Ok(())
        })
    }
}

/// Makes all writes of a transaction visible to every reader, at once. The handle is closed, also
/// after an error, except `QPAIR_BUSY` and `QPAIR_MISUSE`. `timestamp`, which may be null, receives
/// the commit's timestamp: of two commits the later one has the greater timestamp.
///
/// Errors: `QPAIR_CONFLICT`: nothing was changed, and the transaction can be run again.
/// `QPAIR_NO_SPACE`, `QPAIR_READ_ONLY`, `QPAIR_IO`, `QPAIR_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_commit(
    transaction: *mut qpair_transaction,
    timestamp: *mut u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            set(timestamp, take(transaction)?.commit()?.timestamp());
            Ok(())
        })
    }
}

/// Discards all writes of a transaction, and closes the handle. Does nothing if `transaction` is
/// null.
///
/// Errors: `QPAIR_MISUSE` within the function of `qpair_transact`; `QPAIR_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_rollback(
    transaction: *mut qpair_transaction,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || match transaction.is_null() {
            true => Ok(()),
            false => take(transaction).map(Transaction::rollback),
        })
    }
}

/// Copies the value of a key, as the transaction sees it, into a buffer, like `qpair_get`.
///
/// Errors: as `qpair_get`; `QPAIR_SNAPSHOT_LOST`; `QPAIR_CONFLICT` after a conflict.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_transaction_get(
    transaction: *mut qpair_transaction,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    capacity: usize,
    value_len: *mut usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the key, rule 2 for the buffer and the results.
    unsafe {
        call(error, || {
            check_buffer(buffer, capacity, value_len)?;
            let key = bytes(key, key_len, "key")?;
            match with_table(transaction, table, |transaction, table| transaction.get(table, key))?
            {
                Some(value) => copy(&value, buffer, capacity, value_len),
                None => set(value_len, NO_RECORD),
            }
            Ok(())
        })
    }
}

/// Lends the value of a key, as the transaction sees it, like `qpair_get_lent`. With `for_update`
/// the row is locked first, until the transaction ends.
///
/// Errors: as `qpair_transaction_get`; with `for_update` also those of `qpair_transaction_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_transaction_get_lent(
    transaction: *mut qpair_transaction,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    for_update: bool,
    value: *mut *mut qpair_value,
    data: *mut *const c_void,
    value_len: *mut usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the key, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(value, "value")?;
            let key = bytes(key, key_len, "key")?;
            let found = with_table(transaction, table, |transaction, table| match for_update {
                true => transaction.get_for_update(table, key),
                false => transaction.get(table, key),
            })?;
            lend(found, value, data, value_len)
        })
    }
}

/// Inserts or replaces a record in a transaction.
///
/// Errors: `QPAIR_CONFLICT` if another transaction was first: roll back and begin again;
/// `QPAIR_TIMED_OUT`; `QPAIR_TOO_LARGE`; `QPAIR_KEY_TOO_LONG`; `QPAIR_VALUE_TOO_LONG`;
/// `QPAIR_READ_ONLY`; `QPAIR_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_transaction_put(
    transaction: *mut qpair_transaction,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for key and value, rule 2 for `error`.
    unsafe {
        call(error, || {
            let (key, value) = (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?);
            with_table(transaction, table, |transaction, table| transaction.put(table, key, value))
        })
    }
}

/// Inserts a record in a transaction if the key has none. `inserted`, which may be null, receives
/// whether it was.
///
/// Errors: as `qpair_transaction_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_transaction_insert(
    transaction: *mut qpair_transaction,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    inserted: *mut bool,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for key and value, rule 2 for the results.
    unsafe {
        call(error, || {
            let (key, value) = (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?);
            let put = |transaction: &mut Transaction, table: &Table| {
                transaction.insert(table, key, value)
            };
            set(inserted, with_table(transaction, table, put)?);
            Ok(())
        })
    }
}

/// Removes a record in a transaction. `deleted`, which may be null, receives whether there was one.
///
/// Errors: as `qpair_transaction_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_transaction_delete(
    transaction: *mut qpair_transaction,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    deleted: *mut bool,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the key, rule 2 for the results.
    unsafe {
        call(error, || {
            let key = bytes(key, key_len, "key")?;
            let delete =
                |transaction: &mut Transaction, table: &Table| transaction.delete(table, key);
            set(deleted, with_table(transaction, table, delete)?);
            Ok(())
        })
    }
}

/// Replaces a record in a transaction if its value is the expected one, like
/// `qpair_compare_and_swap`.
///
/// Errors: as `qpair_transaction_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_transaction_compare_and_swap(
    transaction: *mut qpair_transaction,
    table: *mut qpair_table,
    key: *const c_void,
    key_len: usize,
    expected: *const c_void,
    expected_len: usize,
    value: *const c_void,
    value_len: usize,
    swapped: *mut bool,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for key and values, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(swapped, "swapped")?;
            let key = bytes(key, key_len, "key")?;
            let expected = bytes_or_none(expected, expected_len, "expected")?;
            let value = bytes_or_none(value, value_len, "value")?;
            let swap = |transaction: &mut Transaction, table: &Table| {
                transaction.compare_and_swap(table, key, expected, value)
            };
            set(swapped, with_table(transaction, table, swap)?);
            Ok(())
        })
    }
}

pub(crate) fn count() -> usize {
    TRANSACTIONS.count()
}
