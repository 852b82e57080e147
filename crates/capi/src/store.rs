//! Stores: opening and closing, tables by name, and calls about a whole store.

use std::ffi::{c_char, c_int, c_void};

use qpair::{Options, Store};

use crate::batch;
use crate::call::{call, missing, needed, set, text};
use crate::error::{Failure, qpair_error};
use crate::handle::Handles;
use crate::options::{self, qpair_options};
use crate::progress::{qpair_progress, reporting};
use crate::table::{self, qpair_table};
use crate::value::{lend_text, qpair_value};

static STORES: Handles<Store> = Handles::new(4, "qpair_store");

/// An open store. Any number of threads may use it at once.
pub struct qpair_store {
    _opaque: [u8; 0],
}

/// Runs a call with a store.
pub(crate) fn with<R>(
    store: *mut qpair_store,
    run: impl FnOnce(&Store) -> Result<R, Failure>,
) -> Result<R, Failure> {
    STORES.with(store, run)
}

/// Opens a store, or creates it.
///
/// `specifier` is a path (a file or a block device), or a specifier that begins with a kind of
/// device: "ram:size=64MiB", "nvme:0000:01:00.0", "stripe:unit=64KiB:A+B" for several members.
/// `options` may be null. Close the store with `qpair_close`: a program that ends without it has
/// its store recovered at the next opening.
///
/// Errors: `QPAIR_NOT_FOUND`, `QPAIR_NOT_A_STORE`, `QPAIR_VERSION`, `QPAIR_MEMBER`,
/// `QPAIR_UNCLEAN`, `QPAIR_CORRUPT`, `QPAIR_EXISTS`, `QPAIR_BUSY`, `QPAIR_DENIED`,
/// `QPAIR_READ_ONLY` about the files and devices; `QPAIR_INVALID`, `QPAIR_NO_MEMORY`,
/// `QPAIR_NO_SPACE`, `QPAIR_UNSUPPORTED`, `QPAIR_LIMIT` about the options and the machine;
/// `QPAIR_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_open(
    specifier: *const c_char,
    options: *const qpair_options,
    store: *mut *mut qpair_store,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the text, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(store, "store")?;
            let opened = options::of(text(specifier, "specifier")?, options)?.open()?;
            set(store, STORES.insert(opened)?);
            Ok(())
        })
    }
}

/// Closes a store: all changes survive power loss when the call returns `QPAIR_OK`. The handle is
/// closed also after an error, except `QPAIR_BUSY`. Tables, transactions and snapshots of the store
/// return `QPAIR_CLOSED` from then on, and the devices are released when these are closed too.
///
/// Errors: `QPAIR_BUSY` if another thread is in a call with this handle; the error of a write or
/// flush that failed, now or earlier; `QPAIR_NOT_FOUND` if a file of the store was removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_close(
    store: *mut qpair_store,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe { call(error, || Ok(STORES.remove(store, |_| Ok(()))?.close()?)) }
}

/// Opens a table of the store, or makes it. Close it with `qpair_table_close`.
///
/// Errors: `QPAIR_INVALID` for the name, `QPAIR_READ_ONLY`, `QPAIR_NO_SPACE`, `QPAIR_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_table_open(
    store: *mut qpair_store,
    name: *const c_char,
    table: *mut *mut qpair_table,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the name, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(table, "table")?;
            let name = text(name, "name")?;
            set(table, table::insert(with(store, |store| Ok(store.table(name)?))?)?);
            Ok(())
        })
    }
}

/// Opens a table whose values are compressed, each by itself, or makes it. `compression` is "none",
/// "lz4" or "zstd"; a table keeps it for good, and all calls take and give values as they were put.
///
/// Errors: `QPAIR_EXISTS` if there is a table of this name with another compression;
/// `QPAIR_INVALID` for the compression; as `qpair_table_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_table_open_compressed(
    store: *mut qpair_store,
    name: *const c_char,
    compression: *const c_char,
    table: *mut *mut qpair_table,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the texts, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(table, "table")?;
            let (name, compression) = (text(name, "name")?, text(compression, "compression")?);
            let compression = compression_of(compression)?;
            let made = with(store, |store| Ok(store.compressed_table(name, compression)?))?;
            set(table, table::insert(made)?);
            Ok(())
        })
    }
}

/// Opens a table whose records expire, or makes it: each is gone `ttl_ms` milliseconds after it was
/// put last. `compression` is as for `qpair_table_open_compressed`. A table keeps both for good.
///
/// Errors: `QPAIR_EXISTS` if there is a table of this name with another time to live or
/// compression; `QPAIR_INVALID` for less than 1,000 ms, and for the compression; as
/// `qpair_table_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_table_open_expiring(
    store: *mut qpair_store,
    name: *const c_char,
    compression: *const c_char,
    ttl_ms: u64,
    table: *mut *mut qpair_table,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the texts, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(table, "table")?;
            let (name, compression) = (text(name, "name")?, text(compression, "compression")?);
            let options = qpair::TableOptions::default()
                .compression(compression_of(compression)?)
                .ttl(std::time::Duration::from_millis(ttl_ms));
            let made = with(store, |store| Ok(store.table_with(name, &options)?))?;
            set(table, table::insert(made)?);
            Ok(())
        })
    }
}

fn compression_of(text: &str) -> Result<qpair::Compression, Failure> {
    text.parse()
        .map_err(|hint| Failure::invalid(format!("there is no compression {text:?}: {hint}")))
}

/// Opens a table only if it exists.
///
/// Errors: `QPAIR_NOT_FOUND` if it does not exist; as `qpair_table_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_table_open_existing(
    store: *mut qpair_store,
    name: *const c_char,
    table: *mut *mut qpair_table,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the name, rule 2 for the results.
    unsafe {
        call(error, || {
            needed(table, "table")?;
            let name = text(name, "name")?;
            let there = with(store, |store| Ok(store.existing_table(name)?))?;
            let there = there.ok_or_else(|| {
                let message = format!("the store has no table {name:?}");
                qpair::Error::new(qpair::ErrorKind::NotFound, message)
            })?;
            set(table, table::insert(there)?);
            Ok(())
        })
    }
}

/// Removes a table with all its records.
///
/// Errors: `QPAIR_NOT_FOUND`, `QPAIR_READ_ONLY`, `QPAIR_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_table_drop(
    store: *mut qpair_store,
    name: *const c_char,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the name, rule 2 for `error`.
    unsafe {
        call(error, || {
            let name = text(name, "name")?;
            with(store, |store| Ok(store.drop_table(name)?))
        })
    }
}

/// Renames a table. Open handles of it continue to work.
///
/// Errors: `QPAIR_NOT_FOUND`, `QPAIR_EXISTS`, `QPAIR_INVALID`, `QPAIR_READ_ONLY`, `QPAIR_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_table_rename(
    store: *mut qpair_store,
    from: *const c_char,
    to: *const c_char,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the names, rule 2 for `error`.
    unsafe {
        call(error, || {
            let (from, to) = (text(from, "from")?, text(to, "to")?);
            with(store, |store| Ok(store.rename_table(from, to)?))
        })
    }
}

/// Lends a text with the names of all tables, in order, as a JSON array.
///
/// Errors: `QPAIR_CLOSED`, `QPAIR_IO`, `QPAIR_CORRUPT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_table_names(
    store: *mut qpair_store,
    names: *mut *mut qpair_value,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            let all = with(store, |store| Ok(store.table_names()?))?;
            let all: Vec<_> = all.iter().map(|name| json_string(name)).collect();
            lend_text(format!("[{}]", all.join(",")), names)
        })
    }
}

fn json_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Stores whether the store refuses changes: it was opened read-only, or a write has failed.
///
/// Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_is_read_only(
    store: *mut qpair_store,
    read_only: *mut bool,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            needed(read_only, "read_only")?;
            set(read_only, with(store, |store| Ok(store.is_read_only()))?);
            Ok(())
        })
    }
}

/// Makes all changes of a batch, in their order, or none of them. The batch keeps its changes, and
/// can be written again or cleared.
///
/// Errors: those of `qpair_put`; `QPAIR_CONFLICT`; `QPAIR_TOO_LARGE`; `QPAIR_INVALID` if a table
/// belongs to another store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_write(
    store: *mut qpair_store,
    batch: *mut batch::qpair_batch,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || {
            let changes = batch::copy(batch)?;
            with(store, |store| Ok(store.write(&changes)?))
        })
    }
}

/// Makes a checkpoint, from which a later recovery starts.
///
/// Errors: `QPAIR_NO_SPACE`, `QPAIR_IO`, `QPAIR_READ_ONLY`, `QPAIR_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_checkpoint(
    store: *mut qpair_store,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe { call(error, || with(store, |store| Ok(store.checkpoint()?))) }
}

/// Copies the store as of one moment to a new store on `target`, a path or specifier, while other
/// threads read and write. An existing target is replaced only with `force`. `progress` may be
/// null; it is told of pages.
///
/// Errors: `QPAIR_EXISTS`, `QPAIR_NO_SPACE`, `QPAIR_DENIED`, `QPAIR_CORRUPT`, `QPAIR_IO`;
/// `QPAIR_INTERRUPTED` if `progress` has stopped it. Files that the call has created are then
/// removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_backup(
    store: *mut qpair_store,
    target: *const c_char,
    force: bool,
    progress: qpair_progress,
    context: *mut c_void,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 1 for the target, 3 for `progress`, 2 for `error`.
    unsafe {
        call(error, || {
            let target = Options::new(text(target, "target")?);
            let target = target.drivers(crate::device::drivers()).force(force);
            let progress = reporting(progress, context);
            with(store, |store| Ok(target.backup_of(store, &progress).map(drop)?))
        })
    }
}

/// Moves pages to the front of the store's files and truncates them. `progress` may be null; it is
/// told of pages. `bytes_before` and `bytes_after`, which may be null, receive the size of the
/// store in bytes.
///
/// Errors: `QPAIR_READ_ONLY`, `QPAIR_NO_SPACE`, `QPAIR_IO`, `QPAIR_CLOSED`; `QPAIR_INTERRUPTED` if
/// `progress` has stopped it, with what was moved so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_compact(
    store: *mut qpair_store,
    progress: qpair_progress,
    context: *mut c_void,
    bytes_before: *mut u64,
    bytes_after: *mut u64,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 3 for `progress`, 2 for the results.
    unsafe {
        call(error, || {
            let progress = reporting(progress, context);
            let report = with(store, |store| Ok(store.compact(&progress)?))?;
            set(bytes_before, report.bytes_before);
            set(bytes_after, report.bytes_after);
            Ok(())
        })
    }
}

/// A form of statistics: a JSON object. Names end in their units; a histogram is an object with
/// `count`, `sum`, `max`, `p50`, `p99` and `buckets`.
pub const QPAIR_STATISTICS_JSON: u32 = 1;
/// A form of statistics: the text format of Prometheus.
pub const QPAIR_STATISTICS_PROMETHEUS: u32 = 2;

/// Lends a text with the counters of the store since it was opened and its present state.
///
/// Errors: `QPAIR_MISUSE` for another form, `QPAIR_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_statistics(
    store: *mut qpair_store,
    form: u32,
    statistics: *mut *mut qpair_value,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for the results.
    unsafe {
        call(error, || {
            let metrics = with(store, |store| Ok(store.metrics()?))?;
            let told = match form {
                QPAIR_STATISTICS_JSON => metrics.to_json(),
                QPAIR_STATISTICS_PROMETHEUS => metrics.to_prometheus(),
                _ => return Err(Failure::misuse(format!("there is no form {form} of statistics"))),
            };
            lend_text(told, statistics)
        })
    }
}

/// Returns the number of handles of all kinds that this process has open, for tests of programs.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_open_handles() -> usize {
    let counts = [
        STORES.count(),
        crate::batch::count(),
        crate::device::count(),
        crate::error::count(),
        crate::options::count(),
        crate::queue::count(),
        crate::range::count(),
        crate::snapshot::count(),
        crate::table::count(),
        crate::transaction::count(),
        crate::value::count(),
    ];
    counts.into_iter().sum()
}

/// Refuses a null pointer to a function that the caller cannot leave out.
pub(crate) fn function<F>(function: Option<F>, name: &str) -> Result<F, Failure> {
    function.ok_or_else(|| missing(name))
}
