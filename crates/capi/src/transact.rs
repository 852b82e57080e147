//! Transactions that are run again after a conflict.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use qpair::{Error, ErrorKind, Transaction};

use crate::call::call;
use crate::code::{QPAIR_OK, code_of, kind_of};
use crate::error::{Failure, qpair_error};
use crate::store::{self, function, qpair_store};
use crate::transaction::{self, options_at, qpair_transaction, qpair_transaction_options};

/// The function of `qpair_transact`. `QPAIR_OK` commits. The code of a call that failed rolls back;
/// after `QPAIR_CONFLICT` the function is run again. Any other number that is no code rolls back,
/// and is what `qpair_transact` returns.
pub type qpair_transact_function = Option<
    unsafe extern "C" fn(context: *mut c_void, transaction: *mut qpair_transaction) -> c_int,
>;

/// Runs a transaction and commits it, and runs it again if it met a conflict. `run` makes all its
/// changes with the transaction that it is given, which it must not end, and must not keep: the
/// handle is closed when `run` returns. `options` may be null.
///
/// Errors: the code that `run` returned; `QPAIR_CONFLICT` if all attempts met one; as
/// `qpair_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_transact(
    store: *mut qpair_store,
    options: *const qpair_transaction_options,
    run: qpair_transact_function,
    context: *mut c_void,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the options, 3 for `run`, 2 for `error`.
    unsafe {
        call(error, || {
            let (options, run) = (options_at(options)?, function(run, "run")?);
            // The outcome that is no error of the store.
            let own = Cell::new(None);
            let outcome = store::with(store, |store| {
                Ok(store.transact_with(&options, |transaction| {
                    let stand_in = store.begin();
                    attempt(transaction, stand_in, |handle| run(context, handle)).map_err(
                        |failure| match failure {
                            Failure::Store(error) => error,
                            other => {
                                own.set(Some(other));
                                Error::new(ErrorKind::Interrupted, "the transaction was given up")
                            }
                        },
                    )
                }))
            })?;
            match own.take() {
                Some(failure) => Err(failure),
                None => Ok(outcome?),
            }
        })
    }
}

/// Runs the function once. The transaction has a handle meanwhile, and a stand-in has its place.
fn attempt(
    transaction: &mut Transaction,
    stand_in: Transaction,
    run: impl FnOnce(*mut qpair_transaction) -> c_int,
) -> Result<(), Failure> {
    let handle = transaction::insert(std::mem::replace(transaction, stand_in), true)?;
    let code = run(handle);
    let open = transaction::take_back(handle)?;
    *transaction = open.transaction;
    if code == QPAIR_OK {
        return Ok(());
    }
    let Some(kind) = kind_of(code) else { return Err(Failure::Callers(code)) };
    Err(match open.failed {
        Some(error) if code_of(error.kind()) == code => error.into(),
        _ => Error::new(kind, "the function of the transaction has returned this error").into(),
    })
}
