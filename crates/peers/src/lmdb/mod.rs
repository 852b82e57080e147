//! LMDB: one writer at a time, readers that see the tree as it was when they began.
//!
//! The file is mapped, and what is kept of it in memory is the kernel's affair; see `cgroup` for
//! how that is bounded.
//!
//! # Safety argument
//!
//! 1. *Life.* `Inner` owns the environment, and its `Drop` is the only place that closes it; each
//!    session holds an `Arc` of it. A transaction is a session's (`open`), and ends in `commit`,
//!    `rollback` or the session's `Drop`, after which the pointer is gone. Cursors live within
//!    `scan`.
//! 2. *Threads.* An environment may be used from all threads (`lmdb.h`), so `Inner` is `Send` and
//!    `Sync`. A transaction that writes belongs to its thread: a session holds raw pointers and is
//!    neither. `NOTLS` unties readers' slots from threads, so that several sessions of a thread do
//!    not get in each other's way. The flag `NOSYNC` is changed only by the thread that holds the
//!    lock of the one writer, between its begin and its commit.
//! 3. *Bytes.* What `mdb_get` and cursors give points into the map and stays until the transaction
//!    ends or writes: it is copied, or lent to a closure that cannot reach the transaction.
//! 4. *Tables.* Their handles are opened once, in `open`, before any session is made.

mod sys;

use std::ffi::{CStr, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::engine::{Engine, Session, Settings, Span, Start, Visit};
use crate::error::{Result, c_string, failed, not_open};

/// Addresses set aside for the map, bytes: the most that a store can grow to.
const MAP_BYTES: usize = 256 << 30;

#[derive(Clone)]
pub struct Lmdb(Arc<Inner>);

struct Inner {
    env: *mut sys::Env,
    tables: Vec<sys::Dbi>,
    /// Commits may be durable.
    log: bool,
    path: PathBuf,
    settings: String,
}

// SAFETY: point 2 of the safety argument: an environment may be used from all threads.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: `self` owns the environment; no transaction is left, as each session holds an
        // `Arc`.
        unsafe {
            sys::mdb_env_sync(self.env, 1);
            sys::mdb_env_close(self.env);
        }
    }
}

fn check(doing: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: LMDB gives a string of its own, which stays, for each code.
    let why = unsafe { CStr::from_ptr(sys::mdb_strerror(code)) };
    Err(failed(doing, why.to_string_lossy()))
}

fn val(bytes: &[u8]) -> sys::Val {
    sys::Val { len: bytes.len(), data: bytes.as_ptr().cast_mut().cast() }
}

const NO_VAL: sys::Val = sys::Val { len: 0, data: null_mut() };

/// # Safety
///
/// LMDB filled `val` in, and nothing has been written nor the transaction ended since, for all of
/// `'a`.
unsafe fn bytes<'a>(val: sys::Val) -> &'a [u8] {
    if val.len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(val.data.cast(), val.len) }
}

/// Lets the kernel forget what it kept of the file, which counts for no process's memory.
fn drop_page_cache(path: &Path) {
    // Where it cannot be done, the first seconds of a run are too fast; nothing else depends on it.
    if let Ok(file) = std::fs::File::open(path.join("data.mdb")) {
        let _ = file.sync_all();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

impl Engine for Lmdb {
    type Session = LmdbSession;

    const NAME: &'static str = "lmdb";

    fn open(settings: &Settings) -> Result<Self> {
        let doing = format!("opening {} with LMDB", settings.path.display());
        std::fs::create_dir_all(&settings.path).map_err(|error| failed(&doing, error))?;
        drop_page_cache(&settings.path);
        let path = c_string(settings.path.as_os_str().as_bytes())?;
        let flags = sys::NOTLS
            | sys::NORDAHEAD
            | sys::NOMEMINIT
            | if settings.log { 0 } else { sys::NOSYNC };
        let mut env = null_mut();
        // SAFETY: the environment is new, and set up before it is opened; `path` lives for the
        // call. From here on `Inner` owns it, and closes it also if opening fails, as `lmdb.h` asks
        // for.
        let mut inner = unsafe {
            check(&doing, sys::mdb_env_create(&mut env))?;
            let inner = Inner {
                env,
                tables: Vec::new(),
                log: settings.log,
                path: settings.path.clone(),
                settings: format!(
                    "mapped file, no read-ahead, a map of {} GiB at most; {}",
                    MAP_BYTES >> 30,
                    if settings.log { "its default flushes" } else { "no flushes (MDB_NOSYNC)" }
                ),
            };
            check(&doing, sys::mdb_env_set_mapsize(env, MAP_BYTES))?;
            check(&doing, sys::mdb_env_set_maxreaders(env, 512))?;
            check(&doing, sys::mdb_env_set_maxdbs(env, 256))?;
            check(&doing, sys::mdb_env_open(env, path.as_ptr(), flags, 0o644))?;
            inner
        };
        let mut txn = null_mut();
        // SAFETY: the environment is open; the transaction ends here in any case, and no other code
        // uses the environment yet.
        unsafe {
            check(&doing, sys::mdb_txn_begin(env, null_mut(), 0, &mut txn))?;
            for table in &settings.tables {
                let name = c_string(table.as_bytes())?;
                let mut dbi = 0;
                let code = sys::mdb_dbi_open(txn, name.as_ptr(), sys::CREATE, &mut dbi);
                if code != 0 {
                    sys::mdb_txn_abort(txn);
                    check(&doing, code)?;
                }
                inner.tables.push(dbi);
            }
            check(&doing, sys::mdb_txn_commit(txn))?;
        }
        Ok(Self(Arc::new(inner)))
    }

    fn session(&self) -> Result<LmdbSession> {
        Ok(LmdbSession { store: self.0.clone(), open: null_mut() })
    }

    fn checkpoint(&self) -> Result<()> {
        // SAFETY: the environment is alive, as `self` holds it.
        check("flushing", unsafe { sys::mdb_env_sync(self.0.env, 1) })
    }

    fn settings(&self) -> &str {
        &self.0.settings
    }

    fn path(&self) -> &Path {
        &self.0.path
    }
}

pub struct LmdbSession {
    store: Arc<Inner>,
    /// Null: no transaction is open.
    open: *mut sys::Txn,
}

impl LmdbSession {
    fn txn(&self, table: u8) -> Result<(*mut sys::Txn, sys::Dbi)> {
        if self.open.is_null() {
            return Err(not_open());
        }
        let dbi = self.store.tables.get(usize::from(table));
        Ok((self.open, *dbi.ok_or_else(|| failed("using a table", "no such table"))?))
    }

    fn end(&mut self) {
        let txn = std::mem::replace(&mut self.open, null_mut());
        if !txn.is_null() {
            // SAFETY: the transaction is this session's, and the pointer is gone after this.
            unsafe { sys::mdb_txn_abort(txn) };
        }
    }
}

impl Drop for LmdbSession {
    fn drop(&mut self) {
        self.end();
    }
}

impl Session for LmdbSession {
    fn begin(&mut self, start: Start) -> Result<()> {
        self.end();
        let flags: c_uint = if start.read_only { sys::RDONLY } else { 0 };
        // SAFETY: the environment is alive, as the session holds it. The flag is changed by the one
        // writer only, while it holds the writer's lock.
        unsafe {
            let env = self.store.env;
            check("beginning", sys::mdb_txn_begin(env, null_mut(), flags, &mut self.open))?;
            if !start.read_only && self.store.log {
                let off = c_int::from(!start.sync);
                check("setting flushes", sys::mdb_env_set_flags(env, sys::NOSYNC, off))?;
            }
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        !self.open.is_null()
    }

    fn get(&mut self, table: u8, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let (txn, dbi) = self.txn(table)?;
        let (mut key, mut data) = (val(key), NO_VAL);
        // SAFETY: the transaction is open; LMDB does not write through the key, and what it gives
        // is copied at once.
        unsafe {
            match sys::mdb_get(txn, dbi, &mut key, &mut data) {
                sys::NOTFOUND => return Ok(false),
                code => check("getting a record", code)?,
            }
            value.extend_from_slice(bytes(data));
        }
        Ok(true)
    }

    fn get_for_update(&mut self, table: u8, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        // There is one writer: no other session changes anything.
        self.get(table, key, value)
    }

    fn put(&mut self, table: u8, key: &[u8], value: &[u8]) -> Result<()> {
        let (txn, dbi) = self.txn(table)?;
        let (mut key, mut data) = (val(key), val(value));
        // SAFETY: the transaction is open; without MDB_RESERVE, LMDB does not write through either,
        // and copies both.
        check("putting a record", unsafe { sys::mdb_put(txn, dbi, &mut key, &mut data, 0) })
    }

    fn delete(&mut self, table: u8, key: &[u8]) -> Result<bool> {
        let (txn, dbi) = self.txn(table)?;
        let mut key = val(key);
        // SAFETY: as in `put`.
        match unsafe { sys::mdb_del(txn, dbi, &mut key, null_mut()) } {
            sys::NOTFOUND => Ok(false),
            code => check("deleting a record", code).map(|()| true),
        }
    }

    fn scan(&mut self, table: u8, span: Span<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let (txn, dbi) = self.txn(table)?;
        let mut cursor = null_mut();
        let (mut key, mut data) = (NO_VAL, NO_VAL);
        // SAFETY: the transaction is open, and the cursor closed before it ends; `visit` cannot
        // reach this session, so that nothing is written while it has what the cursor gave.
        unsafe {
            check("scanning", sys::mdb_cursor_open(txn, dbi, &mut cursor))?;
            let start = if span.backward { span.to } else { span.from };
            let mut code = if start.is_empty() {
                let op = if span.backward { sys::OP_LAST } else { sys::OP_FIRST };
                sys::mdb_cursor_get(cursor, &mut key, &mut data, op)
            } else {
                key = val(start);
                sys::mdb_cursor_get(cursor, &mut key, &mut data, sys::OP_SET_RANGE)
            };
            if span.backward && !start.is_empty() {
                // At the first key that is not below the end: the one before it is the last of the
                // span.
                let op = if code == sys::NOTFOUND { sys::OP_LAST } else { sys::OP_PREV };
                code = sys::mdb_cursor_get(cursor, &mut key, &mut data, op);
            }
            let op = if span.backward { sys::OP_PREV } else { sys::OP_NEXT };
            while code == 0 && !span.is_left_by(bytes(key)) && visit(bytes(key), bytes(data)) {
                code = sys::mdb_cursor_get(cursor, &mut key, &mut data, op);
            }
            sys::mdb_cursor_close(cursor);
            if code == sys::NOTFOUND { Ok(()) } else { check("scanning", code) }
        }
    }

    fn commit(&mut self) -> Result<()> {
        let txn = std::mem::replace(&mut self.open, null_mut());
        if txn.is_null() {
            return Err(not_open());
        }
        // SAFETY: the transaction is this session's, and the pointer is gone: LMDB frees it
        // whatever the outcome.
        check("committing", unsafe { sys::mdb_txn_commit(txn) })
    }

    fn rollback(&mut self) -> Result<()> {
        self.end();
        Ok(())
    }
}
