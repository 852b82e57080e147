//! WiredTiger: B-trees in a file each, snapshot isolation, a log.
//!
//! # Safety argument
//!
//! 1. *Life.* `Inner` owns the connection, and its `Drop` is the only place that closes it; each
//!    session holds an `Arc` of it. A session owns its `WT_SESSION`, with its cursors, and closes
//!    both in its `Drop`.
//! 2. *Threads.* A connection may be called from all threads, so `Inner` is `Send` and `Sync`. A
//!    `WT_SESSION` may not: a session holds raw pointers and is neither.
//! 3. *Bytes.* Keys and values are lent for the call that uses them: `shim.c` sets them and calls
//!    the operation in one function, and each cursor is reset, or moved by its own operation,
//!    before the next. What a cursor gives stays until its next operation: it is copied, or lent to
//!    a closure that cannot reach the session.
//! 4. *Layouts.* Only `shim.c` looks into WiredTiger's structures, by WiredTiger's own header.

mod sys;

use std::ffi::{CStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use crate::engine::{Engine, Session, Settings, Span, Start, Visit};
use crate::error::{Error, Result, c_string, failed, not_open};

#[derive(Clone)]
pub struct WiredTiger(Arc<Inner>);

struct Inner {
    connection: *mut sys::Connection,
    tables: Vec<String>,
    log: bool,
    path: PathBuf,
    settings: String,
}

// SAFETY: point 2 of the safety argument: a connection may be used from all threads.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: `self` owns the connection; no session is left, as each holds an `Arc`.
        unsafe { sys::peers_wt_close(self.connection) };
    }
}

fn check(doing: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: WiredTiger gives a string for each code, which stays at least until the thread asks
    // again.
    let (why, conflict) = unsafe {
        (CStr::from_ptr(sys::peers_wt_error(code)), sys::peers_wt_is_conflict(code) != 0)
    };
    let why = why.to_string_lossy();
    if conflict { Err(Error::Conflict(why.into_owned())) } else { Err(failed(doing, why)) }
}

/// `false`: there was no such key.
fn found(doing: &str, code: c_int) -> Result<bool> {
    // SAFETY: compares a number.
    if unsafe { sys::peers_wt_is_not_found(code) } != 0 {
        return Ok(false);
    }
    check(doing, code).map(|()| true)
}

fn uri(table: &str) -> String {
    format!("table:{table}")
}

impl Engine for WiredTiger {
    type Session = WiredTigerSession;

    const NAME: &'static str = "wiredtiger";

    fn open(settings: &Settings) -> Result<Self> {
        let doing = format!("opening {} with WiredTiger", settings.path.display());
        std::fs::create_dir_all(&settings.path).map_err(|error| failed(&doing, error))?;
        let home = c_string(settings.path.as_os_str().as_bytes())?;
        let cache_mib = (settings.memory_bytes >> 20).max(1);
        let threads = settings.background_threads.clamp(1, 20);
        // A commit can be told not to flush the log, but not to flush it where the connection does
        // not.
        let log = if settings.log {
            "log=(enabled=true,file_max=128MB),transaction_sync=(enabled=true,method=fsync),"
        } else {
            ""
        };
        let config = format!(
            "create,cache_size={cache_mib}MB,session_max=1024,direct_io=[data],{log}\
             checkpoint=(wait=60,log_size=1GB),eviction=(threads_min=1,threads_max={threads}),statistics=(fast)"
        );
        let table_config = format!(
            "key_format=u,value_format=u,allocation_size=4KB,leaf_page_max={}B",
            settings.page_bytes
        );
        let mut connection = null_mut();
        let config_text = c_string(config.as_bytes())?;
        // SAFETY: the strings live for the call.
        check(&doing, unsafe {
            sys::peers_wt_open(home.as_ptr(), config_text.as_ptr(), &mut connection)
        })?;
        let store = Self(Arc::new(Inner {
            connection,
            tables: settings.tables.clone(),
            log: settings.log,
            path: settings.path.clone(),
            settings: format!("{config}; tables: {table_config}"),
        }));
        let session = store.open_session()?;
        let table_config = c_string(table_config.as_bytes())?;
        for table in &settings.tables {
            let uri = c_string(uri(table).as_bytes())?;
            // SAFETY: the session is alive, and the strings live for the call.
            check(&doing, unsafe {
                sys::peers_wt_create(session.session, uri.as_ptr(), table_config.as_ptr())
            })?;
        }
        Ok(store)
    }

    fn session(&self) -> Result<WiredTigerSession> {
        let mut session = self.open_session()?;
        for table in &self.0.tables {
            let uri = c_string(uri(table).as_bytes())?;
            let mut cursor = null_mut();
            // SAFETY: the session is alive, and the string lives for the call. The session closes
            // its cursors.
            check("opening a cursor", unsafe {
                sys::peers_wt_cursor(session.session, uri.as_ptr(), null(), &mut cursor)
            })?;
            session.cursors.push(cursor);
        }
        Ok(session)
    }

    fn checkpoint(&self) -> Result<()> {
        let session = self.open_session()?;
        // SAFETY: the session is alive.
        check("making a checkpoint", unsafe { sys::peers_wt_checkpoint(session.session) })
    }

    fn settings(&self) -> &str {
        &self.0.settings
    }

    fn path(&self) -> &Path {
        &self.0.path
    }

    fn log_flushes(&self) -> Option<u64> {
        let session = self.open_session().ok()?;
        let mut count = 0;
        // SAFETY: the session is alive; `count` is written by the call only.
        let code = unsafe { sys::peers_wt_log_flushes(session.session, &mut count) };
        if code == 0 { u64::try_from(count).ok() } else { None }
    }
}

impl WiredTiger {
    fn open_session(&self) -> Result<WiredTigerSession> {
        let mut session = null_mut();
        // SAFETY: the connection is alive, as `self` holds it; the string is a literal.
        check("opening a session", unsafe {
            sys::peers_wt_session(self.0.connection, c"isolation=snapshot".as_ptr(), &mut session)
        })?;
        Ok(WiredTigerSession { session, cursors: Vec::new(), open: None, store: self.0.clone() })
    }
}

pub struct WiredTigerSession {
    session: *mut sys::WtSession,
    /// By table.
    cursors: Vec<*mut sys::Cursor>,
    open: Option<Start>,
    store: Arc<Inner>,
}

impl Drop for WiredTigerSession {
    fn drop(&mut self) {
        // SAFETY: the session is this one's, and its connection still open, as `store` is held. It
        // rolls back what is open.
        unsafe { sys::peers_wt_session_close(self.session) };
    }
}

impl WiredTigerSession {
    fn cursor(&self, table: u8) -> Result<*mut sys::Cursor> {
        if self.open.is_none() {
            return Err(not_open());
        }
        let cursor = self.cursors.get(usize::from(table));
        cursor.copied().ok_or_else(|| failed("using a table", "no such table"))
    }
}

/// # Safety
///
/// `cursor` is positioned, and is not used again while the bytes are.
unsafe fn value_of<'a>(cursor: *mut sys::Cursor) -> Result<&'a [u8]> {
    let (mut data, mut len) = (null(), 0);
    // SAFETY: the cursor is positioned, by the caller's promise.
    check("reading a value", unsafe { sys::peers_wt_value(cursor, &mut data, &mut len) })?;
    // SAFETY: the bytes stay until the cursor is used again.
    Ok(unsafe { slice(data, len) })
}

/// # Safety
///
/// As for `value_of`.
unsafe fn key_of<'a>(cursor: *mut sys::Cursor) -> Result<&'a [u8]> {
    let (mut data, mut len) = (null(), 0);
    // SAFETY: the cursor is positioned, by the caller's promise.
    check("reading a key", unsafe { sys::peers_wt_key(cursor, &mut data, &mut len) })?;
    // SAFETY: the bytes stay until the cursor is used again.
    Ok(unsafe { slice(data, len) })
}

/// # Safety
///
/// `data` points to `len` bytes that stay for `'a`, or `len` is 0.
unsafe fn slice<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

impl Session for WiredTigerSession {
    const NEVER_WAITS: bool = true;

    fn begin(&mut self, start: Start) -> Result<()> {
        self.rollback()?;
        // SAFETY: the session is alive, and has no transaction.
        check("beginning", unsafe { sys::peers_wt_begin(self.session, null()) })?;
        self.open = Some(start);
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.open.is_some()
    }

    fn get(&mut self, table: u8, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let cursor = self.cursor(table)?;
        // SAFETY: the cursor is the session's, which is alive; the value is copied before the
        // cursor is reset.
        unsafe {
            let code = sys::peers_wt_search(cursor, key.as_ptr().cast(), key.len());
            if !found("getting a record", code)? {
                return Ok(false);
            }
            value.extend_from_slice(value_of(cursor)?);
            check("getting a record", sys::peers_wt_reset(cursor))?;
        }
        Ok(true)
    }

    fn get_for_update(&mut self, table: u8, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let cursor = self.cursor(table)?;
        // SAFETY: as in `get`. Reserving positions the cursor, and takes the key for this
        // transaction as an update would.
        unsafe {
            let code = sys::peers_wt_reserve(cursor, key.as_ptr().cast(), key.len());
            if !found("reserving a record", code)? {
                return Ok(false);
            }
            value.extend_from_slice(value_of(cursor)?);
            check("reserving a record", sys::peers_wt_reset(cursor))?;
        }
        Ok(true)
    }

    fn put(&mut self, table: u8, key: &[u8], value: &[u8]) -> Result<()> {
        let cursor = self.cursor(table)?;
        // SAFETY: the cursor is the session's, which is alive; the bytes live for the call. An
        // insert leaves no position.
        check("putting a record", unsafe {
            let (data, len) = (value.as_ptr().cast(), value.len());
            sys::peers_wt_put(cursor, key.as_ptr().cast(), key.len(), data, len)
        })
    }

    fn delete(&mut self, table: u8, key: &[u8]) -> Result<bool> {
        let cursor = self.cursor(table)?;
        // SAFETY: as in `put`. A cursor that overwrites does not tell whether the key was there: it
        // is searched for first.
        unsafe {
            let code = sys::peers_wt_search(cursor, key.as_ptr().cast(), key.len());
            if !found("deleting a record", code)? {
                return Ok(false);
            }
            let code = sys::peers_wt_remove(cursor, key.as_ptr().cast(), key.len());
            let deleted = found("deleting a record", code)?;
            check("deleting a record", sys::peers_wt_reset(cursor))?;
            Ok(deleted)
        }
    }

    fn scan(&mut self, table: u8, span: Span<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let cursor = self.cursor(table)?;
        let start = if span.backward { span.to } else { span.from };
        let mut exact = 0;
        // SAFETY: the cursor is the session's, which is alive; what it gives is lent to `visit` for
        // its call, which cannot reach the session, and the cursor moves after it.
        unsafe {
            let step = if span.backward { sys::peers_wt_prev } else { sys::peers_wt_next };
            let mut there = if start.is_empty() {
                found("scanning", step(cursor))?
            } else {
                let (data, len) = (start.as_ptr().cast(), start.len());
                let code = sys::peers_wt_search_near(cursor, data, len, &mut exact);
                let there = found("scanning", code)?;
                // It is at the key, at the one after it (1) or at the one before it (-1).
                if there && (span.backward && exact >= 0 || !span.backward && exact < 0) {
                    found("scanning", step(cursor))?
                } else {
                    there
                }
            };
            while there {
                let key = key_of(cursor)?;
                if span.is_left_by(key) || !visit(key, value_of(cursor)?) {
                    break;
                }
                there = found("scanning", step(cursor))?;
            }
            check("scanning", sys::peers_wt_reset(cursor))
        }
    }

    fn commit(&mut self) -> Result<()> {
        let start = self.open.take().ok_or_else(not_open)?;
        let flush = start.sync || start.read_only || !self.store.log;
        let config = if flush { null() } else { c"sync=off".as_ptr() };
        // SAFETY: the session is alive and has a transaction; the configuration is a literal. A
        // commit that fails rolls back.
        check("committing", unsafe { sys::peers_wt_commit(self.session, config) })
    }

    fn rollback(&mut self) -> Result<()> {
        if self.open.take().is_none() {
            return Ok(());
        }
        // SAFETY: the session is alive and has a transaction.
        check("rolling back", unsafe { sys::peers_wt_rollback(self.session) })
    }
}
