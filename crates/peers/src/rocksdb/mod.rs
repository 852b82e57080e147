//! RocksDB through its C interface: a pessimistic `TransactionDB`, with the write-committed policy.
//!
//! Tables share one column family: a key begins with the number of its table, so that all of them
//! share the memtables and the memory is one figure. The number 255 keeps the names of the tables.
//!
//! # Safety argument
//!
//! 1. *Life.* `Inner` owns the database and the options, and its `Drop` is the only place that
//!    frees them; a session holds an `Arc` of it, and so does each `Open` transaction, and with
//!    that everything they point to. What a transaction owns (`txn`, `read_options`, `snapshot`) is
//!    freed by its own `Drop` only. The bounds of a scan live in `scan`'s frame, longer than its
//!    iterator.
//! 2. *Threads.* A database may be called from all threads, and its options are not changed after
//!    `open`: so `Inner` is `Send` and `Sync`. A session is neither, as it holds raw pointers.
//! 3. *Bytes.* Keys and values are passed with their lengths and copied by the library. What it
//!    gives (`PinnableSlice`, iterators' keys and values) is copied or lent to a closure before the
//!    next call on the same object.
//! 4. *Errors.* Each call gets a null error pointer; a message it leaves is copied and freed in
//!    `check`.

mod sys;

use std::ffi::{CStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use crate::engine::{Engine, Session, Settings, Span, Start, Visit};
use crate::error::{Error, Result, c_string, failed, not_open};

/// The first byte of the keys that keep the tables' names.
const NAMES: u8 = 255;

#[derive(Clone)]
pub struct Rocks(Arc<Inner>);

struct Inner {
    db: *mut sys::TransactionDb,
    /// For commits that wait for the log, and for those that do not.
    write_options: [*mut sys::WriteOptions; 2],
    transaction_options: *mut sys::TransactionOptions,
    path: PathBuf,
    settings: String,
}

// SAFETY: point 2 of the safety argument: `db` may be used from all threads, and the options are
// not changed after `open`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: `self` owns them, made by the functions these undo; no transaction is left, as
        // each holds an `Arc`.
        unsafe {
            sys::rocksdb_transactiondb_close(self.db);
            for options in self.write_options {
                sys::rocksdb_writeoptions_destroy(options);
            }
            sys::rocksdb_transaction_options_destroy(self.transaction_options);
        }
    }
}

/// The error a call left, if it left one.
fn check(doing: &str, error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the library's error messages are strings of C that the caller frees (rocksdb/c.h,
    // convention 3).
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        sys::rocksdb_free(error.cast());
        text
    };
    // Status::ToString begins with the status' code.
    let lost = ["Resource busy", "Operation timed out", "Operation failed. Try again"];
    if lost.iter().any(|code| text.starts_with(code)) {
        return Err(Error::Conflict(text));
    }
    Err(failed(doing, text))
}

/// How the memory is shared out: the block cache, and a memtable's part.
///
/// Up to three memtables are there at once, and one more is kept for the check of conflicts.
fn share(memory_bytes: u64) -> (usize, usize) {
    let memtable = (memory_bytes / 16).clamp(2 << 20, 64 << 20);
    let cache = memory_bytes.saturating_sub(4 * memtable).max(1 << 20);
    (usize::try_from(cache).unwrap_or(usize::MAX), usize::try_from(memtable).unwrap_or(64 << 20))
}

impl Engine for Rocks {
    type Session = RocksSession;

    const NAME: &'static str = "rocksdb";

    fn open(settings: &Settings) -> Result<Self> {
        if settings.tables.len() >= usize::from(NAMES) {
            return Err(failed("opening a store with RocksDB", "255 tables or more"));
        }
        let path = c_string(settings.path.as_os_str().as_bytes())?;
        let (cache_bytes, memtable_bytes) = share(settings.memory_bytes);
        let page_bytes = usize::try_from(settings.page_bytes).unwrap_or(4096);
        let jobs = settings.background_threads.clamp(2, 64) as i32;
        let told = format!(
            "TransactionDB, write-committed, snapshot at the first read; block cache of {} MiB with index and filter blocks in it, 3 \
             memtables of {} MiB and 1 for conflicts; blocks of {} bytes, bloom filters of 10 bits a key, no compression; direct I/O \
             for tables; {jobs} background jobs; {}",
            cache_bytes >> 20,
            memtable_bytes >> 20,
            settings.page_bytes,
            if settings.log { "log on" } else { "log off" }
        );
        let mut error = null_mut();
        // SAFETY: every object is made here and freed here, but for those that `Inner` takes; the
        // database copies the options and shares the cache, and the table options take the filter
        // policy.
        let store = unsafe {
            let table = sys::rocksdb_block_based_options_create();
            let cache = sys::rocksdb_cache_create_lru(cache_bytes);
            sys::rocksdb_block_based_options_set_block_cache(table, cache);
            sys::rocksdb_block_based_options_set_block_size(table, page_bytes);
            sys::rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
            sys::rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1);
            let bloom = sys::rocksdb_filterpolicy_create_bloom_full(10.0);
            sys::rocksdb_block_based_options_set_filter_policy(table, bloom);
            let options = sys::rocksdb_options_create();
            sys::rocksdb_options_set_create_if_missing(options, 1);
            sys::rocksdb_options_set_block_based_table_factory(options, table);
            sys::rocksdb_options_set_write_buffer_size(options, memtable_bytes);
            sys::rocksdb_options_set_max_write_buffer_number(options, 3);
            let kept = i64::try_from(memtable_bytes).unwrap_or(i64::MAX);
            sys::rocksdb_options_set_max_write_buffer_size_to_maintain(options, kept);
            sys::rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
            sys::rocksdb_options_set_max_background_jobs(options, jobs);
            sys::rocksdb_options_set_use_direct_reads(options, 1);
            sys::rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, 1);
            sys::rocksdb_options_set_compression(options, 0);
            let db_options = sys::rocksdb_transactiondb_options_create();
            let db =
                sys::rocksdb_transactiondb_open(options, db_options, path.as_ptr(), &mut error);
            sys::rocksdb_transactiondb_options_destroy(db_options);
            sys::rocksdb_options_destroy(options);
            sys::rocksdb_block_based_options_destroy(table);
            sys::rocksdb_cache_destroy(cache);
            check(&format!("opening {} with RocksDB", settings.path.display()), error)?;
            let write_options = [false, true].map(|sync| {
                let options = sys::rocksdb_writeoptions_create();
                sys::rocksdb_writeoptions_set_sync(options, u8::from(sync && settings.log));
                sys::rocksdb_writeoptions_disable_WAL(options, i32::from(!settings.log));
                options
            });
            let transaction_options = sys::rocksdb_transaction_options_create();
            sys::rocksdb_transaction_options_set_deadlock_detect(transaction_options, 1);
            Self(Arc::new(Inner {
                db,
                write_options,
                transaction_options,
                path: settings.path.clone(),
                settings: told,
            }))
        };
        store.check_tables(&settings.tables)?;
        Ok(store)
    }

    fn session(&self) -> Result<RocksSession> {
        Ok(RocksSession { store: self.0.clone(), open: None, key: Vec::with_capacity(64) })
    }

    fn checkpoint(&self) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: `db` is alive; the options live for the call.
        unsafe {
            let options = sys::rocksdb_flushoptions_create();
            sys::rocksdb_transactiondb_flush(self.0.db, options, &mut error);
            sys::rocksdb_flushoptions_destroy(options);
        }
        check("flushing the memtables", error)
    }

    fn settings(&self) -> &str {
        &self.0.settings
    }

    fn path(&self) -> &Path {
        &self.0.path
    }
}

impl Rocks {
    /// Refuses a store whose tables have other names; writes them into one that is new.
    fn check_tables(&self, tables: &[String]) -> Result<()> {
        let names = tables.join("\n");
        let mut session = self.session()?;
        session.begin(Start { read_only: false, sync: false })?;
        let mut found = Vec::new();
        if session.get(NAMES, b"", &mut found)? {
            if found != names.as_bytes() {
                let why = format!("its tables are {}", String::from_utf8_lossy(&found));
                return Err(failed("opening a store of another workload", why.replace('\n', ", ")));
            }
        } else {
            session.put(NAMES, b"", names.as_bytes())?;
        }
        session.commit()
    }
}

struct Open {
    txn: *mut sys::RocksTransaction,
    read_options: *mut sys::ReadOptions,
    /// The structure that the C interface puts around the transaction's snapshot; null: nothing was
    /// read yet.
    snapshot: *const sys::Snapshot,
    _store: Arc<Inner>,
}

impl Open {
    fn begin(store: &Arc<Inner>, sync: bool) -> Self {
        // SAFETY: `db` and the options are alive, as `Inner` is held.
        unsafe {
            let txn = sys::rocksdb_transaction_begin(
                store.db,
                store.write_options[usize::from(sync)],
                store.transaction_options,
                null_mut(),
            );
            let read_options = sys::rocksdb_readoptions_create();
            Self { txn, read_options, snapshot: null(), _store: store.clone() }
        }
    }

    /// Takes the snapshot, if there is none yet: what is read and changed from now on is checked
    /// against it.
    fn take_snapshot(&mut self) {
        if self.snapshot.is_null() {
            // SAFETY: `txn` and `read_options` are this transaction's own. The structure around the
            // snapshot is freed in `Drop`; the snapshot itself is the transaction's, which ends
            // after every use of `read_options`.
            unsafe {
                sys::peers_rocksdb_set_snapshot(self.txn);
                self.snapshot = sys::rocksdb_transaction_get_snapshot(self.txn);
                sys::rocksdb_readoptions_set_snapshot(self.read_options, self.snapshot);
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: the three are this transaction's own, made in `begin`; destroying a transaction
        // rolls it back, and gives its locks and its snapshot back.
        unsafe {
            sys::rocksdb_readoptions_destroy(self.read_options);
            sys::rocksdb_free(self.snapshot.cast_mut().cast());
            sys::rocksdb_transaction_destroy(self.txn);
        }
    }
}

pub struct RocksSession {
    store: Arc<Inner>,
    open: Option<Open>,
    /// The key in use, with its table's number before it.
    key: Vec<u8>,
}

fn set_key(target: &mut Vec<u8>, table: u8, key: &[u8]) {
    target.clear();
    target.push(table);
    target.extend_from_slice(key);
}

/// Copies what a lookup found, and lets it go.
fn take(slice: *mut sys::PinnableSlice, value: &mut Vec<u8>) -> bool {
    value.clear();
    if slice.is_null() {
        return false;
    }
    let mut len = 0;
    // SAFETY: the slice is not null, is the caller's to destroy, and its bytes live until then.
    unsafe {
        let data = sys::rocksdb_pinnableslice_value(slice, &mut len);
        value.extend_from_slice(bytes(data, len));
        sys::rocksdb_pinnableslice_destroy(slice);
    }
    true
}

/// # Safety
///
/// `data` points to `len` bytes that stay for `'a`, or `len` is 0.
unsafe fn bytes<'a>(data: *const c_char, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

impl RocksSession {
    /// The transaction; `key` is set to the key with its table before it.
    fn with_key(&mut self, table: u8, key: &[u8]) -> Result<(&mut Open, &[u8])> {
        set_key(&mut self.key, table, key);
        Ok((self.open.as_mut().ok_or_else(not_open)?, &self.key))
    }
}

impl Session for RocksSession {
    fn begin(&mut self, start: Start) -> Result<()> {
        self.open = Some(Open::begin(&self.store, start.sync && !start.read_only));
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.open.is_some()
    }

    fn get(&mut self, table: u8, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (open, key) = self.with_key(table, key)?;
        open.take_snapshot();
        let mut error = null_mut();
        // SAFETY: `txn` and `read_options` are alive while `open` is; the key lives for the call.
        let slice = unsafe {
            let (data, len) = (key.as_ptr().cast(), key.len());
            sys::rocksdb_transaction_get_pinned(open.txn, open.read_options, data, len, &mut error)
        };
        check("getting a record", error)?;
        Ok(take(slice, value))
    }

    fn get_for_update(&mut self, table: u8, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (open, key) = self.with_key(table, key)?;
        let mut error = null_mut();
        // SAFETY: as in `get`.
        let slice = unsafe {
            sys::rocksdb_transaction_get_pinned_for_update(
                open.txn,
                open.read_options,
                key.as_ptr().cast(),
                key.len(),
                1,
                &mut error,
            )
        };
        check("getting a record to update", error)?;
        // Taken after the first lock, so that a transaction that waited for it does not conflict
        // with the one it waited for.
        open.take_snapshot();
        Ok(take(slice, value))
    }

    fn lock(&mut self, table: u8, key: &[u8]) -> Result<()> {
        let (open, key) = self.with_key(table, key)?;
        let mut error = null_mut();
        // SAFETY: `txn` is alive while `open` is; the key lives for the call.
        unsafe { sys::peers_rocksdb_lock(open.txn, key.as_ptr().cast(), key.len(), &mut error) };
        check("locking a record", error)
    }

    fn put(&mut self, table: u8, key: &[u8], value: &[u8]) -> Result<()> {
        let (open, key) = self.with_key(table, key)?;
        let mut error = null_mut();
        // SAFETY: `txn` is alive while `open` is; the bytes live for the call, which copies them.
        unsafe {
            sys::rocksdb_transaction_put(
                open.txn,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &mut error,
            );
        }
        check("putting a record", error)
    }

    fn delete(&mut self, table: u8, key: &[u8]) -> Result<bool> {
        let mut old = Vec::new();
        let there = self.get_for_update(table, key, &mut old)?;
        let (open, key) = self.with_key(table, key)?;
        let mut error = null_mut();
        // SAFETY: as in `put`.
        unsafe {
            let (data, len) = (key.as_ptr().cast(), key.len());
            sys::rocksdb_transaction_delete(open.txn, data, len, &mut error);
        }
        check("deleting a record", error)?;
        Ok(there)
    }

    fn scan(&mut self, table: u8, span: Span<'_>, visit: &mut Visit<'_>) -> Result<()> {
        // The iterator is told where to end, so that it does not look further.
        let mut upper = Vec::with_capacity(64);
        if span.to.is_empty() {
            upper.push(table + 1);
        } else {
            set_key(&mut upper, table, span.to);
        }
        let (open, from) = self.with_key(table, span.from)?;
        open.take_snapshot();
        let mut error = null_mut();
        // SAFETY: `txn` and its snapshot are alive while `open` is; `upper` and `from` outlive the
        // iterator and its options; keys and values are lent to `visit` for its call only, and the
        // iterator moves after it.
        unsafe {
            let options = sys::rocksdb_readoptions_create();
            sys::rocksdb_readoptions_set_snapshot(options, open.snapshot);
            let (end, len) = (upper.as_ptr().cast(), upper.len());
            sys::rocksdb_readoptions_set_iterate_upper_bound(options, end, len);
            let iterator = sys::rocksdb_transaction_create_iterator(open.txn, options);
            if span.backward {
                sys::rocksdb_iter_seek_for_prev(iterator, end, len);
            } else {
                sys::rocksdb_iter_seek(iterator, from.as_ptr().cast(), from.len());
            }
            while sys::rocksdb_iter_valid(iterator) != 0 {
                let (mut key_len, mut value_len) = (0, 0);
                let key = sys::rocksdb_iter_key(iterator, &mut key_len);
                let Some((&number, key)) = bytes(key, key_len).split_first() else { break };
                // Going backward the iterator may begin at the end itself, which what the
                // transaction wrote may be.
                let at_end =
                    span.backward && (number > table || !span.to.is_empty() && key >= span.to);
                if !at_end {
                    if number != table || span.is_left_by(key) {
                        break;
                    }
                    let value = sys::rocksdb_iter_value(iterator, &mut value_len);
                    if !visit(key, bytes(value, value_len)) {
                        break;
                    }
                }
                if span.backward {
                    sys::rocksdb_iter_prev(iterator);
                } else {
                    sys::rocksdb_iter_next(iterator);
                }
            }
            sys::rocksdb_iter_get_error(iterator, &mut error);
            sys::rocksdb_iter_destroy(iterator);
            sys::rocksdb_readoptions_destroy(options);
        }
        check("scanning", error)
    }

    fn commit(&mut self) -> Result<()> {
        let open = self.open.take().ok_or_else(not_open)?;
        let mut error = null_mut();
        // SAFETY: `txn` is alive until `open` is dropped, which is at the end.
        unsafe { sys::rocksdb_transaction_commit(open.txn, &mut error) };
        check("committing", error)
    }

    fn rollback(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let mut error = null_mut();
        // SAFETY: as in `commit`.
        unsafe { sys::rocksdb_transaction_rollback(open.txn, &mut error) };
        check("rolling back", error)
    }
}
