//! The functions of `rocksdb/c.h` that are used here, as version 7.8 declares them, and those of
//! `shim.cc`.

use std::ffi::{c_char, c_double, c_int, c_uchar};

macro_rules! opaque {
    ($($name:ident),*) => {
        $(#[repr(C)]
        pub(super) struct $name {
            _private: [u8; 0],
        })*
    };
}

opaque!(
    BlockTableOptions,
    Cache,
    FilterPolicy,
    FlushOptions,
    Iterator,
    Options,
    PinnableSlice,
    ReadOptions,
    RocksTransaction,
    Snapshot,
    TransactionDb,
    TransactionDbOptions,
    TransactionOptions,
    WriteOptions
);

unsafe extern "C" {
    pub(super) fn rocksdb_free(pointer: *mut std::ffi::c_void);

    pub(super) fn rocksdb_options_create() -> *mut Options;
    pub(super) fn rocksdb_options_destroy(options: *mut Options);
    pub(super) fn rocksdb_options_set_create_if_missing(options: *mut Options, value: c_uchar);
    pub(super) fn rocksdb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    pub(super) fn rocksdb_options_set_max_write_buffer_number(options: *mut Options, count: c_int);
    pub(super) fn rocksdb_options_set_max_write_buffer_size_to_maintain(
        options: *mut Options,
        bytes: i64,
    );
    pub(super) fn rocksdb_options_set_level_compaction_dynamic_level_bytes(
        options: *mut Options,
        value: c_uchar,
    );
    pub(super) fn rocksdb_options_set_max_background_jobs(options: *mut Options, count: c_int);
    pub(super) fn rocksdb_options_set_use_direct_reads(options: *mut Options, value: c_uchar);
    pub(super) fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(
        options: *mut Options,
        value: c_uchar,
    );
    pub(super) fn rocksdb_options_set_compression(options: *mut Options, value: c_int);
    pub(super) fn rocksdb_options_set_block_based_table_factory(
        options: *mut Options,
        table: *mut BlockTableOptions,
    );

    pub(super) fn rocksdb_block_based_options_create() -> *mut BlockTableOptions;
    pub(super) fn rocksdb_block_based_options_destroy(options: *mut BlockTableOptions);
    pub(super) fn rocksdb_block_based_options_set_block_size(
        options: *mut BlockTableOptions,
        bytes: usize,
    );
    pub(super) fn rocksdb_block_based_options_set_block_cache(
        options: *mut BlockTableOptions,
        cache: *mut Cache,
    );
    pub(super) fn rocksdb_block_based_options_set_filter_policy(
        options: *mut BlockTableOptions,
        policy: *mut FilterPolicy,
    );
    pub(super) fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(
        options: *mut BlockTableOptions,
        value: c_uchar,
    );
    pub(super) fn rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(
        options: *mut BlockTableOptions,
        value: c_uchar,
    );
    pub(super) fn rocksdb_cache_create_lru(bytes: usize) -> *mut Cache;
    pub(super) fn rocksdb_cache_destroy(cache: *mut Cache);
    pub(super) fn rocksdb_filterpolicy_create_bloom_full(
        bits_per_key: c_double,
    ) -> *mut FilterPolicy;

    pub(super) fn rocksdb_transactiondb_options_create() -> *mut TransactionDbOptions;
    pub(super) fn rocksdb_transactiondb_options_destroy(options: *mut TransactionDbOptions);
    pub(super) fn rocksdb_transactiondb_open(
        options: *const Options,
        transaction_options: *const TransactionDbOptions,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut TransactionDb;
    pub(super) fn rocksdb_transactiondb_close(db: *mut TransactionDb);

    pub(super) fn rocksdb_transactiondb_flush(
        db: *mut TransactionDb,
        options: *const FlushOptions,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    pub(super) fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);

    pub(super) fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub(super) fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    pub(super) fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, value: c_uchar);
    pub(super) fn rocksdb_writeoptions_disable_WAL(options: *mut WriteOptions, value: c_int);

    pub(super) fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub(super) fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    pub(super) fn rocksdb_readoptions_set_snapshot(
        options: *mut ReadOptions,
        snapshot: *const Snapshot,
    );
    pub(super) fn rocksdb_readoptions_set_iterate_upper_bound(
        options: *mut ReadOptions,
        key: *const c_char,
        key_len: usize,
    );

    pub(super) fn rocksdb_transaction_options_create() -> *mut TransactionOptions;
    pub(super) fn rocksdb_transaction_options_destroy(options: *mut TransactionOptions);
    pub(super) fn rocksdb_transaction_options_set_deadlock_detect(
        options: *mut TransactionOptions,
        value: c_uchar,
    );

    pub(super) fn rocksdb_transaction_begin(
        db: *mut TransactionDb,
        write_options: *const WriteOptions,
        transaction_options: *const TransactionOptions,
        reused: *mut RocksTransaction,
    ) -> *mut RocksTransaction;
    pub(super) fn rocksdb_transaction_commit(
        transaction: *mut RocksTransaction,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_transaction_rollback(
        transaction: *mut RocksTransaction,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_transaction_destroy(transaction: *mut RocksTransaction);
    pub(super) fn rocksdb_transaction_get_snapshot(
        transaction: *mut RocksTransaction,
    ) -> *const Snapshot;
    pub(super) fn rocksdb_transaction_get_pinned(
        transaction: *mut RocksTransaction,
        options: *const ReadOptions,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_transaction_get_pinned_for_update(
        transaction: *mut RocksTransaction,
        options: *const ReadOptions,
        key: *const c_char,
        key_len: usize,
        exclusive: c_uchar,
        error: *mut *mut c_char,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_transaction_put(
        transaction: *mut RocksTransaction,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_transaction_delete(
        transaction: *mut RocksTransaction,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_transaction_create_iterator(
        transaction: *mut RocksTransaction,
        options: *const ReadOptions,
    ) -> *mut Iterator;

    pub(super) fn peers_rocksdb_set_snapshot(transaction: *mut RocksTransaction);
    pub(super) fn peers_rocksdb_lock(
        transaction: *mut RocksTransaction,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    );

    pub(super) fn rocksdb_pinnableslice_value(
        slice: *const PinnableSlice,
        len: *mut usize,
    ) -> *const c_char;
    pub(super) fn rocksdb_pinnableslice_destroy(slice: *mut PinnableSlice);

    pub(super) fn rocksdb_iter_destroy(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_valid(iterator: *const Iterator) -> c_uchar;
    pub(super) fn rocksdb_iter_seek(iterator: *mut Iterator, key: *const c_char, key_len: usize);
    pub(super) fn rocksdb_iter_seek_for_prev(
        iterator: *mut Iterator,
        key: *const c_char,
        key_len: usize,
    );
    pub(super) fn rocksdb_iter_next(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_prev(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_key(iterator: *const Iterator, len: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_value(iterator: *const Iterator, len: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_get_error(iterator: *const Iterator, error: *mut *mut c_char);
}
