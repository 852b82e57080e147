//! The functions of `shim.c`.

use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub(super) struct Connection {
    _private: [u8; 0],
}

#[repr(C)]
pub(super) struct WtSession {
    _private: [u8; 0],
}

#[repr(C)]
pub(super) struct Cursor {
    _private: [u8; 0],
}

unsafe extern "C" {
    pub(super) fn peers_wt_open(
        home: *const c_char,
        config: *const c_char,
        connection: *mut *mut Connection,
    ) -> c_int;
    pub(super) fn peers_wt_close(connection: *mut Connection) -> c_int;
    pub(super) fn peers_wt_session(
        connection: *mut Connection,
        config: *const c_char,
        session: *mut *mut WtSession,
    ) -> c_int;
    pub(super) fn peers_wt_session_close(session: *mut WtSession) -> c_int;
    pub(super) fn peers_wt_create(
        session: *mut WtSession,
        uri: *const c_char,
        config: *const c_char,
    ) -> c_int;
    pub(super) fn peers_wt_checkpoint(session: *mut WtSession) -> c_int;
    pub(super) fn peers_wt_begin(session: *mut WtSession, config: *const c_char) -> c_int;
    pub(super) fn peers_wt_commit(session: *mut WtSession, config: *const c_char) -> c_int;
    pub(super) fn peers_wt_rollback(session: *mut WtSession) -> c_int;
    pub(super) fn peers_wt_cursor(
        session: *mut WtSession,
        uri: *const c_char,
        config: *const c_char,
        cursor: *mut *mut Cursor,
    ) -> c_int;
    pub(super) fn peers_wt_reset(cursor: *mut Cursor) -> c_int;
    pub(super) fn peers_wt_search(cursor: *mut Cursor, key: *const c_void, key_len: usize)
    -> c_int;
    pub(super) fn peers_wt_search_near(
        cursor: *mut Cursor,
        key: *const c_void,
        key_len: usize,
        exact: *mut c_int,
    ) -> c_int;
    pub(super) fn peers_wt_reserve(
        cursor: *mut Cursor,
        key: *const c_void,
        key_len: usize,
    ) -> c_int;
    pub(super) fn peers_wt_next(cursor: *mut Cursor) -> c_int;
    pub(super) fn peers_wt_prev(cursor: *mut Cursor) -> c_int;
    pub(super) fn peers_wt_key(
        cursor: *mut Cursor,
        data: *mut *const c_void,
        len: *mut usize,
    ) -> c_int;
    pub(super) fn peers_wt_value(
        cursor: *mut Cursor,
        data: *mut *const c_void,
        len: *mut usize,
    ) -> c_int;
    pub(super) fn peers_wt_put(
        cursor: *mut Cursor,
        key: *const c_void,
        key_len: usize,
        value: *const c_void,
        value_len: usize,
    ) -> c_int;
    pub(super) fn peers_wt_remove(cursor: *mut Cursor, key: *const c_void, key_len: usize)
    -> c_int;
    pub(super) fn peers_wt_log_flushes(session: *mut WtSession, count: *mut i64) -> c_int;
    pub(super) fn peers_wt_error(error: c_int) -> *const c_char;
    pub(super) fn peers_wt_is_conflict(error: c_int) -> c_int;
    pub(super) fn peers_wt_is_not_found(error: c_int) -> c_int;
}
