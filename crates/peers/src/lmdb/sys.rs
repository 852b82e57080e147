//! The functions of `lmdb.h` that are used here, as version 0.9 declares them.

use std::ffi::{c_char, c_int, c_uint, c_void};

#[repr(C)]
pub(super) struct Env {
    _private: [u8; 0],
}

#[repr(C)]
pub(super) struct Txn {
    _private: [u8; 0],
}

#[repr(C)]
pub(super) struct Cursor {
    _private: [u8; 0],
}

/// `MDB_val`: bytes of the side that made it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Val {
    pub(super) len: usize,
    pub(super) data: *mut c_void,
}

pub(super) type Dbi = c_uint;

pub(super) const NOSYNC: c_uint = 0x1_0000;
pub(super) const RDONLY: c_uint = 0x2_0000;
pub(super) const NOTLS: c_uint = 0x20_0000;
pub(super) const NORDAHEAD: c_uint = 0x80_0000;
pub(super) const NOMEMINIT: c_uint = 0x100_0000;
pub(super) const CREATE: c_uint = 0x4_0000;

pub(super) const NOTFOUND: c_int = -30798;

/// Values of `MDB_cursor_op`.
pub(super) const OP_FIRST: c_int = 0;
pub(super) const OP_LAST: c_int = 6;
pub(super) const OP_NEXT: c_int = 8;
pub(super) const OP_PREV: c_int = 12;
pub(super) const OP_SET_RANGE: c_int = 17;

unsafe extern "C" {
    pub(super) fn mdb_strerror(error: c_int) -> *const c_char;
    pub(super) fn mdb_env_create(env: *mut *mut Env) -> c_int;
    pub(super) fn mdb_env_open(
        env: *mut Env,
        path: *const c_char,
        flags: c_uint,
        mode: u32,
    ) -> c_int;
    pub(super) fn mdb_env_close(env: *mut Env);
    pub(super) fn mdb_env_sync(env: *mut Env, force: c_int) -> c_int;
    pub(super) fn mdb_env_set_mapsize(env: *mut Env, bytes: usize) -> c_int;
    pub(super) fn mdb_env_set_maxreaders(env: *mut Env, readers: c_uint) -> c_int;
    pub(super) fn mdb_env_set_maxdbs(env: *mut Env, count: Dbi) -> c_int;
    pub(super) fn mdb_env_set_flags(env: *mut Env, flags: c_uint, on: c_int) -> c_int;
    pub(super) fn mdb_txn_begin(
        env: *mut Env,
        parent: *mut Txn,
        flags: c_uint,
        txn: *mut *mut Txn,
    ) -> c_int;
    pub(super) fn mdb_txn_commit(txn: *mut Txn) -> c_int;
    pub(super) fn mdb_txn_abort(txn: *mut Txn);
    pub(super) fn mdb_dbi_open(
        txn: *mut Txn,
        name: *const c_char,
        flags: c_uint,
        dbi: *mut Dbi,
    ) -> c_int;
    pub(super) fn mdb_get(txn: *mut Txn, dbi: Dbi, key: *mut Val, data: *mut Val) -> c_int;
    pub(super) fn mdb_put(
        txn: *mut Txn,
        dbi: Dbi,
        key: *mut Val,
        data: *mut Val,
        flags: c_uint,
    ) -> c_int;
    pub(super) fn mdb_del(txn: *mut Txn, dbi: Dbi, key: *mut Val, data: *mut Val) -> c_int;
    pub(super) fn mdb_cursor_open(txn: *mut Txn, dbi: Dbi, cursor: *mut *mut Cursor) -> c_int;
    pub(super) fn mdb_cursor_close(cursor: *mut Cursor);
    pub(super) fn mdb_cursor_get(
        cursor: *mut Cursor,
        key: *mut Val,
        data: *mut Val,
        op: c_int,
    ) -> c_int;
}
