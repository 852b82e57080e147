/*
 * qpair: an embedded key-value store on files and block devices, and block devices themselves.
 *
 * Made from crates/capi by crates/capi/header; do not edit.
 *
 * Calls return QPAIR_OK (0) or the code of an error. A call that takes `qpair_error **error` stores an
 * error there, which the caller frees with qpair_error_free, or NULL after a success; pass NULL to do
 * without. All texts are UTF-8. Results of a call that failed are unchanged, unless its description says
 * otherwise.
 *
 * Handles (qpair_store *, qpair_table *, ...) are numbers in the shape of pointers: never look behind one.
 * A handle that is null, was closed, or is of another kind is QPAIR_MISUSE. Closing a handle while another
 * thread is in a call with it is QPAIR_BUSY, and so is the use of a transaction, range, batch or options
 * by two threads at once. After fork(2) the child can use no handle of its parent (QPAIR_FORKED), and
 * closing them there does nothing: open stores and devices after the fork.
 *
 * What the library cannot check is undefined, as in C:
 * 1. A pointer with a length points to that many readable bytes, which nobody changes during the call. A
 *    text ends with a zero byte. A struct has its field `size` set, and is as large.
 * 2. A pointer to a result is NULL, where the description allows it, or points to writable memory of that
 *    type, which no other thread uses during the call.
 * 3. A function returns normally: it does not longjmp out, and throws no exception.
 * 4. The buffer of qpair_device_read is writable until the completion was taken or the queue is closed. All
 *    other input is copied before the call returns.
 */


#ifndef QPAIR_H
#define QPAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * The length that a key without a record has in the place of a value's length.
 */
#define QPAIR_NO_RECORD SIZE_MAX


/**
 * The call succeeded.
 */
#define QPAIR_OK 0

/**
 * An argument or option is out of range, or the call is not allowed here.
 */
#define QPAIR_INVALID 1

/**
 * A key is longer than 65,535 bytes, or too long for a table with a time to live.
 */
#define QPAIR_KEY_TOO_LONG 2

/**
 * A value is longer than 16 MiB.
 */
#define QPAIR_VALUE_TOO_LONG 3

/**
 * The store, table, file or device does not exist. (A key without a record is no error.)
 */
#define QPAIR_NOT_FOUND 4

/**
 * A table has this name already, or a device has other content.
 */
#define QPAIR_EXISTS 5

/**
 * The permission is missing.
 */
#define QPAIR_DENIED 6

/**
 * The store or device is open elsewhere, another call uses the handle, or too many requests are
 * in flight.
 */
#define QPAIR_BUSY 7

/**
 * The devices do not hold a store of this software.
 */
#define QPAIR_NOT_A_STORE 8

/**
 * The store has a version or features that this library does not know.
 */
#define QPAIR_VERSION 9

/**
 * The store was not closed, and cannot be recovered as it is to be opened.
 */
#define QPAIR_UNCLEAN 10

/**
 * A member of the store is missing, or is in the place of another one.
 */
#define QPAIR_MEMBER 11

/**
 * The bytes read differ from those that were written.
 */
#define QPAIR_CORRUPT 12

/**
 * The device has no space left.
 */
#define QPAIR_NO_SPACE 13

/**
 * The memory that the store was given is too small.
 */
#define QPAIR_NO_MEMORY 14

/**
 * The machine does not support the request.
 */
#define QPAIR_UNSUPPORTED 15

/**
 * A limit of the process or machine is too small.
 */
#define QPAIR_LIMIT 16

/**
 * The store or device was opened read-only, or the store became read-only by a failed write.
 */
#define QPAIR_READ_ONLY 17

/**
 * The device failed.
 */
#define QPAIR_IO 18

/**
 * The store is closed.
 */
#define QPAIR_CLOSED 19

/**
 * Another transaction has changed or locked a row that this one needs: run it again.
 */
#define QPAIR_CONFLICT 20

/**
 * A row was locked for longer than the lock timeout. The call had no effect.
 */
#define QPAIR_TIMED_OUT 21

/**
 * The transaction needs more memory than it may have.
 */
#define QPAIR_TOO_LARGE 22

/**
 * The snapshot was given up, because the older values that it needed took too much memory.
 */
#define QPAIR_SNAPSHOT_LOST 23

/**
 * A function of the caller stopped the operation.
 */
#define QPAIR_INTERRUPTED 24

/**
 * The library has a bug, and panicked. A store that says so must be opened again.
 */
#define QPAIR_PANICKED 25

/**
 * The call has a null pointer where none is allowed, a handle that was closed or is of another
 * kind, or a struct without its size.
 */
#define QPAIR_MISUSE 26

/**
 * The handle was made by a process of which this one is a fork. Nothing was done.
 */
#define QPAIR_FORKED 27

/**
 * The error is of a kind that this version of the interface has no number for.
 */
#define QPAIR_OTHER 28

/**
 * An operation of a completion: none, since the call has not ended yet.
 */
#define QPAIR_OPERATION_NONE 0

/**
 * An operation of a completion: `qpair_get_async`.
 */
#define QPAIR_OPERATION_GET 1

/**
 * An operation of a completion: `qpair_put_async`; `result` says whether a record was replaced.
 */
#define QPAIR_OPERATION_PUT 2

/**
 * An operation of a completion: `qpair_delete_async`; `result` says whether there was a record.
 */
#define QPAIR_OPERATION_DELETE 3

/**
 * An operation of a completion: `qpair_commit_async`; `result` is the commit's timestamp.
 */
#define QPAIR_OPERATION_COMMIT 4

/**
 * An operation of a completion: `qpair_write_async`.
 */
#define QPAIR_OPERATION_WRITE 5

/**
 * An operation of a completion: `qpair_device_read`; the caller's buffer is filled.
 */
#define QPAIR_OPERATION_DEVICE_READ 16

/**
 * An operation of a completion: `qpair_device_write`.
 */
#define QPAIR_OPERATION_DEVICE_WRITE 17

/**
 * An operation of a completion: `qpair_device_flush`.
 */
#define QPAIR_OPERATION_DEVICE_FLUSH 18

/**
 * An operation of a completion: `qpair_device_discard`.
 */
#define QPAIR_OPERATION_DEVICE_DISCARD 19

/**
 * An operation of a completion: `qpair_device_write_zeroes`.
 */
#define QPAIR_OPERATION_DEVICE_WRITE_ZEROES 20

/**
 * A flag of `qpair_device_write`: the data survives power loss when the write completes (FUA).
 */
#define QPAIR_WRITE_DURABLE 1

/**
 * A type of an option: "true" or "false".
 */
#define QPAIR_OPTION_BOOL 1

/**
 * A type of an option: a whole number.
 */
#define QPAIR_OPTION_NUMBER 2

/**
 * A type of an option: a number of bytes; in a text with a unit, such as "64MiB".
 */
#define QPAIR_OPTION_BYTES 3

/**
 * A type of an option: text.
 */
#define QPAIR_OPTION_TEXT 4

/**
 * A flag of a range: the record of the key `from` is not part of it.
 */
#define QPAIR_RANGE_AFTER_FROM 1

/**
 * A flag of a range: the record of the key `to` is part of it.
 */
#define QPAIR_RANGE_WITH_TO 2

/**
 * A flag of a range: the records come in descending order of their keys.
 */
#define QPAIR_RANGE_REVERSE 4

/**
 * A form of statistics: a JSON object. Names end in their units; a histogram is an object with
 * `count`, `sum`, `max`, `p50`, `p99` and `buckets`.
 */
#define QPAIR_STATISTICS_JSON 1

/**
 * A form of statistics: the text format of Prometheus.
 */
#define QPAIR_STATISTICS_PROMETHEUS 2

/**
 * An isolation: each transaction sees the commits before its first read, and a conflict is an
 * error for the later writer.
 */
#define QPAIR_ISOLATION_SNAPSHOT 0

/**
 * An isolation: the outcome is that of transactions one after the other.
 */
#define QPAIR_ISOLATION_SERIALIZABLE 1

/**
 * A durability: a commit that has returned survives power loss.
 */
#define QPAIR_DURABILITY_SYNC 0

/**
 * A durability: the same, and commits wait a little for others, to be flushed together.
 */
#define QPAIR_DURABILITY_GROUP 1

/**
 * A durability: a commit returns before it survives power loss.
 */
#define QPAIR_DURABILITY_ASYNC 2

/**
 * The version of the interface in this header. The library's is that of `qpair_abi_version`.
 */
#define QPAIR_ABI_VERSION 1

/**
 * Changes that `qpair_write` makes all at once. A batch belongs to one thread at a time.
 */
typedef struct qpair_batch qpair_batch;

/**
 * An open block device. Any number of threads may use it at once.
 */
typedef struct qpair_device qpair_device;

/**
 * An error that a call has returned: a code, a message for people, and perhaps advice. The caller
 * owns it, and frees it with `qpair_error_free`.
 */
typedef struct qpair_error qpair_error;

/**
 * Options that open a store. They belong to one thread at a time.
 */
typedef struct qpair_options qpair_options;

/**
 * A queue of asynchronous calls and their completions, with a descriptor to wait for. Any number
 * of threads may use it at once. It belongs to no store.
 */
typedef struct qpair_queue qpair_queue;

/**
 * An iteration over the records of a range. It belongs to one thread at a time.
 */
typedef struct qpair_range qpair_range;

/**
 * The store as it was at one point, for reading. Any number of threads may use it at once.
 */
typedef struct qpair_snapshot qpair_snapshot;

/**
 * An open store. Any number of threads may use it at once.
 */
typedef struct qpair_store qpair_store;

/**
 * A table of a store: an ordered map from keys to values, both byte strings. Any number of threads
 * may use a handle at once; threads that make very many calls are faster with a handle each.
 */
typedef struct qpair_table qpair_table;

/**
 * A transaction. It belongs to one thread at a time, and may move to another between calls.
 */
typedef struct qpair_transaction qpair_transaction;

/**
 * A value or text that the library lends: valid until it is released by `qpair_value_release`,
 * whatever happens to the table or store.
 */
typedef struct qpair_value qpair_value;

/**
 * The options of a device. Set `size` to `sizeof(struct qpair_device_options)` and all other
 * fields to 0, and then what should differ from the defaults.
 */
typedef struct qpair_device_options {
    /**
     * The size of this struct in bytes.
     */
    size_t size;
    /**
     * 1 to open the device for reading only. Default: 0.
     */
    uint32_t read_only;
    /**
     * 1 to use the page cache of the kernel. Default: 0, direct I/O.
     */
    uint32_t buffered;
    /**
     * The number of requests that may be in flight at once; 0 for 64, the default.
     */
    uint32_t depth;
    /**
     * The size of the largest request in bytes, a power of two; 0 for 128 KiB, the default. The
     * device takes up to `depth` times as much memory.
     */
    uint32_t transfer_bytes_max;
    /**
     * The interface to the kernel and its mode, as the option "io" of a store; null for "auto".
     */
    const char *io;
} qpair_device_options;

/**
 * The properties of a device. Set `size` to `sizeof(struct qpair_device_info)`.
 */
typedef struct qpair_device_info {
    /**
     * The size of this struct in bytes.
     */
    size_t size;
    /**
     * The size of the device in bytes.
     */
    uint64_t size_bytes;
    /**
     * The unit of offsets and lengths in bytes.
     */
    uint32_t logical_block_bytes;
    /**
     * The size of the largest read or write in bytes.
     */
    uint32_t transfer_bytes_max;
    /**
     * The number of requests that may be in flight at once.
     */
    uint32_t depth;
    /**
     * 1 if the device refuses writes.
     */
    uint32_t read_only;
    /**
     * 1 if completed writes need a flush to survive power loss.
     */
    uint32_t volatile_write_cache;
    /**
     * 1 if the device takes discards.
     */
    uint32_t discards;
    /**
     * 1 if the device takes requests to write zeroes.
     */
    uint32_t writes_zeroes;
    /**
     * 0; for later versions.
     */
    uint32_t reserved;
} qpair_device_info;

/**
 * A record for `qpair_load`. Key and value are read before the function is called again.
 */
typedef struct qpair_record {
    /**
     * The size of this struct in bytes, as the library knows it.
     */
    size_t size;
    /**
     * The key.
     */
    const void *key;
    /**
     * The length of the key in bytes.
     */
    size_t key_len;
    /**
     * The value.
     */
    const void *value;
    /**
     * The length of the value in bytes.
     */
    size_t value_len;
} qpair_record;

/**
 * A function that gives the records of a load one after the other: 1 after it has stored one, 0
 * after the last one, and any other number to give the load up.
 */
typedef int (*qpair_load_next)(void *context, struct qpair_record *record);

/**
 * An option of `qpair_open`, as `qpair_options_list` describes it. All texts are constant.
 */
typedef struct qpair_option {
    /**
     * The size of this struct: the distance to the next one.
     */
    size_t size;
    /**
     * The name, for `qpair_options_set`.
     */
    const char *name;
    /**
     * The type: `QPAIR_OPTION_BOOL` and so on. Each may be set as text too.
     */
    uint32_t option_type;
    /**
     * The value that holds if the option is not set, in words.
     */
    const char *default_value;
    /**
     * The meaning, unit and range.
     */
    const char *help;
} qpair_option;

/**
 * The end of an asynchronous call. Set `size` to `sizeof(struct qpair_completion)` before a call
 * that stores completions; of an array, in the first one.
 */
typedef struct qpair_completion {
    /**
     * The size of this struct in bytes, which is also the distance to the next one.
     */
    size_t size;
    /**
     * The number that the caller has given to the call.
     */
    uint64_t user_data;
    /**
     * The call that ended: `QPAIR_OPERATION_GET` and so on.
     */
    uint32_t operation;
    /**
     * `QPAIR_OK`, or the code of the error.
     */
    int code;
    /**
     * The error, which the caller frees with `qpair_error_free`; null after a success.
     */
    struct qpair_error *error;
    /**
     * The value of a get, which the caller releases with `qpair_value_release`; null if the key
     * has no record.
     */
    struct qpair_value *value;
    /**
     * The bytes of the value, until it is released.
     */
    const void *data;
    /**
     * The length of the value in bytes; `QPAIR_NO_RECORD` if the key has no record.
     */
    size_t data_len;
    /**
     * The result that the operation describes.
     */
    uint64_t result;
} qpair_completion;

/**
 * The bounds of a range of keys. Set `size` to `sizeof(struct qpair_range_options)` and all other
 * fields to 0 for all records in ascending order, and then what should differ.
 */
typedef struct qpair_range_options {
    /**
     * The size of this struct in bytes.
     */
    size_t size;
    /**
     * Flags: `QPAIR_RANGE_AFTER_FROM`, `QPAIR_RANGE_WITH_TO`, `QPAIR_RANGE_REVERSE`.
     */
    uint64_t flags;
    /**
     * The lower bound; null for none. The record with this key is part of the range.
     */
    const void *from;
    /**
     * The length of `from` in bytes.
     */
    size_t from_len;
    /**
     * The upper bound; null for none. The record with this key is not part of the range.
     */
    const void *to;
    /**
     * The length of `to` in bytes.
     */
    size_t to_len;
    /**
     * Instead of bounds: the range has the keys that begin with these bytes. Null for none.
     */
    const void *prefix;
    /**
     * The length of `prefix` in bytes.
     */
    size_t prefix_len;
    /**
     * The number of records after which the range ends, and reads no further; 0 for no limit.
     */
    uint64_t limit;
} qpair_range_options;

/**
 * A function that a long call reports to, on the thread of the call: `done` of about `all` pages
 * or records are done. A result other than 0 stops the call, which then returns
 * `QPAIR_INTERRUPTED`.
 */
typedef int (*qpair_progress)(void *context, uint64_t done, uint64_t all);

/**
 * The options of a transaction. Set `size` to `sizeof(struct qpair_transaction_options)` and all
 * other fields to 0, and then what should differ from the defaults.
 */
typedef struct qpair_transaction_options {
    /**
     * The size of this struct in bytes.
     */
    size_t size;
    /**
     * `QPAIR_ISOLATION_SNAPSHOT` (default) or `QPAIR_ISOLATION_SERIALIZABLE`.
     */
    uint32_t isolation;
    /**
     * `QPAIR_DURABILITY_SYNC` (default), `QPAIR_DURABILITY_GROUP` or `QPAIR_DURABILITY_ASYNC`.
     */
    uint32_t durability;
    /**
     * 1 for a transaction that only reads; writes are refused then. 0 otherwise.
     */
    uint32_t read_only;
    /**
     * The number of times that `qpair_transact` runs a transaction that meets conflicts; 0 for
     * 100, the default.
     */
    uint32_t attempts_max;
    /**
     * Limit on the memory for the transaction's writes, in bytes; 0 for the store's limit. Writes
     * beyond it go to the device.
     */
    uint64_t write_set_bytes_max;
    /**
     * Microseconds that a call waits for a row that another transaction has locked; 0 for the
     * store's limit.
     */
    uint64_t lock_timeout_us;
    /**
     * The name of the transaction in statistics and errors; may be null.
     */
    const char *name;
} qpair_transaction_options;

/**
 * The function of `qpair_transact`. `QPAIR_OK` commits. The code of a call that failed rolls back;
 * after `QPAIR_CONFLICT` the function is run again. Any other number that is no code rolls back,
 * and is what `qpair_transact` returns.
 */
typedef int (*qpair_transact_function)(void *context, struct qpair_transaction *transaction);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates a batch without changes. Free it with `qpair_batch_free`.
 *
 * Errors: `QPAIR_LIMIT` if there are too many.
 */
int qpair_batch_new(struct qpair_batch **batch, struct qpair_error **error);

/**
 * Adds a change that inserts or replaces a record.
 *
 * Errors: `QPAIR_BUSY` if another thread is in a call with the batch. Sizes are checked when the
 * batch is written.
 */
int qpair_batch_put(struct qpair_batch *batch,
                    struct qpair_table *table,
                    const void *key,
                    size_t key_len,
                    const void *value,
                    size_t value_len,
                    struct qpair_error **error);

/**
 * Adds a change that removes a record, if there is one.
 *
 * Errors: as `qpair_batch_put`.
 */
int qpair_batch_delete(struct qpair_batch *batch,
                       struct qpair_table *table,
                       const void *key,
                       size_t key_len,
                       struct qpair_error **error);

/**
 * Removes all changes from a batch.
 *
 * Errors: as `qpair_batch_put`.
 */
int qpair_batch_clear(struct qpair_batch *batch, struct qpair_error **error);

/**
 * Frees a batch. Does nothing if `batch` is null.
 *
 * Errors: `QPAIR_MISUSE` if it was freed before, `QPAIR_BUSY`.
 */
int qpair_batch_free(struct qpair_batch *batch, struct qpair_error **error);

/**
 * Returns the name of a code, such as "QPAIR_NOT_FOUND". The text is constant. Returns
 * "unknown code" for a number that is no code.
 */
const char *qpair_code_name(int code);

/**
 * Opens a block device. `specifier` is a path or a specifier, as for `qpair_open`. `options` may
 * be null. Close it with `qpair_device_close`.
 *
 * Errors: `QPAIR_NOT_FOUND`, `QPAIR_DENIED`, `QPAIR_BUSY`, `QPAIR_INVALID`, `QPAIR_UNSUPPORTED`,
 * `QPAIR_LIMIT`, `QPAIR_NO_MEMORY`, `QPAIR_IO`.
 */
int qpair_device_open(const char *specifier,
                      const struct qpair_device_options *options,
                      struct qpair_device **device,
                      struct qpair_error **error);

/**
 * Closes a device, after its requests in flight have completed. Their completions stay in their
 * queues. Does nothing if `device` is null.
 *
 * Errors: `QPAIR_MISUSE` if it was closed before; `QPAIR_BUSY` if another thread is in a call with
 * it.
 */
int qpair_device_close(struct qpair_device *device, struct qpair_error **error);

/**
 * Stores the properties of a device. Set the `size` of `*info`.
 *
 * Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`.
 */
int qpair_device_get_info(struct qpair_device *device,
                          struct qpair_device_info *info,
                          struct qpair_error **error);

/**
 * Begins to read `len` bytes at `offset` into `buffer`, which is filled when the completion is
 * taken, and must be there until then, or until the queue is closed. Offset and length are
 * multiples of the logical block.
 *
 * Errors: `QPAIR_BUSY` if the depth is used up: take completions first; `QPAIR_INVALID` if the
 * request is too long; in the completion `QPAIR_INVALID`, `QPAIR_IO` and the like.
 */
int qpair_device_read(struct qpair_device *device,
                      struct qpair_queue *queue,
                      uint64_t offset,
                      void *buffer,
                      uint32_t len,
                      uint64_t user_data,
                      struct qpair_error **error);

/**
 * Begins to write `len` bytes of `data` at `offset`. The data is copied before the call returns.
 * `flags` is 0 or `QPAIR_WRITE_DURABLE`.
 *
 * Errors: as `qpair_device_read`; in the completion also `QPAIR_READ_ONLY` and `QPAIR_NO_SPACE`.
 */
int qpair_device_write(struct qpair_device *device,
                       struct qpair_queue *queue,
                       uint64_t offset,
                       const void *data,
                       uint32_t len,
                       uint32_t flags,
                       uint64_t user_data,
                       struct qpair_error **error);

/**
 * Begins to make every write that has completed before this call survive power loss.
 *
 * Errors: as `qpair_device_read`.
 */
int qpair_device_flush(struct qpair_device *device,
                       struct qpair_queue *queue,
                       uint64_t user_data,
                       struct qpair_error **error);

/**
 * Begins to tell the device that `len` bytes at `offset` are no longer needed. Their content is
 * undefined afterwards.
 *
 * Errors: as `qpair_device_write`; in the completion also `QPAIR_UNSUPPORTED`.
 */
int qpair_device_discard(struct qpair_device *device,
                         struct qpair_queue *queue,
                         uint64_t offset,
                         uint32_t len,
                         uint64_t user_data,
                         struct qpair_error **error);

/**
 * Begins to make `len` bytes at `offset` read as zeroes.
 *
 * Errors: as `qpair_device_discard`.
 */
int qpair_device_write_zeroes(struct qpair_device *device,
                              struct qpair_queue *queue,
                              uint64_t offset,
                              uint32_t len,
                              uint64_t user_data,
                              struct qpair_error **error);

/**
 * Returns the code of an error; `QPAIR_OK` if `error` is null, and `QPAIR_MISUSE` if it was freed.
 */
int qpair_error_code(const struct qpair_error *error);

/**
 * Returns the message of an error, with the advice in parentheses at its end: a sentence in UTF-8,
 * which may change from release to release. The text is there until the error is freed. Returns
 * null if `error` is null or was freed.
 */
const char *qpair_error_message(const struct qpair_error *error);

/**
 * Returns the advice of an error alone, or an empty text if it has none. The text is there until
 * the error is freed. Returns null if `error` is null or was freed.
 */
const char *qpair_error_hint(const struct qpair_error *error);

/**
 * Frees an error. Does nothing if `error` is null or was freed before.
 */
void qpair_error_free(struct qpair_error *error);

/**
 * Loads records, in the order of their keys, into an empty table: much faster than `qpair_put`.
 * `next` is called on this thread. `records`, which may be null, receives their number.
 *
 * Errors: `QPAIR_INVALID` if the table is not empty or the keys do not ascend;
 * `QPAIR_INTERRUPTED` if `next` gave it up; as `qpair_put`. After an error the table is empty as
 * before.
 */
int qpair_load(struct qpair_table *table,
               qpair_load_next next,
               void *context,
               uint64_t *records,
               struct qpair_error **error);

/**
 * Stores the table of all options of `qpair_open`: `*options` is the first of `*count` structs,
 * which lie `(*options)->size` bytes apart and are constant.
 *
 * Errors: `QPAIR_MISUSE` if `options` or `count` is null.
 */
int qpair_options_list(const struct qpair_option **options, size_t *count, struct qpair_error **error);

/**
 * Creates options without any set. Free them with `qpair_options_free`; `qpair_open` copies them.
 *
 * Errors: `QPAIR_LIMIT` if there are too many.
 */
int qpair_options_new(struct qpair_options **options, struct qpair_error **error);

/**
 * Sets an option by its name, from text: "64MiB" for bytes, "true" or "false", a whole number, or
 * text. An option that is set twice has the later value.
 *
 * Errors: `QPAIR_INVALID` if there is no such option, or the value is not one of its type.
 */
int qpair_options_set(struct qpair_options *options,
                      const char *name,
                      const char *value,
                      struct qpair_error **error);

/**
 * Sets an option that is a number or a number of bytes.
 *
 * Errors: as `qpair_options_set`.
 */
int qpair_options_set_number(struct qpair_options *options,
                             const char *name,
                             uint64_t value,
                             struct qpair_error **error);

/**
 * Sets an option that is true or false.
 *
 * Errors: as `qpair_options_set`.
 */
int qpair_options_set_bool(struct qpair_options *options,
                           const char *name,
                           bool value,
                           struct qpair_error **error);

/**
 * Frees options. Does nothing if `options` is null.
 *
 * Errors: `QPAIR_MISUSE` if they were freed before.
 */
int qpair_options_free(struct qpair_options *options, struct qpair_error **error);

/**
 * Creates a queue, with notifications switched on.
 *
 * Errors: `QPAIR_LIMIT` if the process can have no more descriptors.
 */
int qpair_queue_new(struct qpair_queue **queue, struct qpair_error **error);

/**
 * Closes a queue. Calls under way continue, and their completions are lost; buffers of reads are
 * no longer written. Does nothing if `queue` is null.
 *
 * Errors: `QPAIR_MISUSE` if it was closed before; `QPAIR_BUSY` if another thread is in a call with
 * it.
 */
int qpair_queue_close(struct qpair_queue *queue, struct qpair_error **error);

/**
 * Stores the queue's descriptor, an eventfd that stays the library's. It is readable while
 * completions can be taken and notifications are on. Wait for it with poll(2) or epoll(7), and do
 * not read it. It may be readable without a completion.
 *
 * Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`.
 */
int qpair_queue_descriptor(struct qpair_queue *queue, int *descriptor, struct qpair_error **error);

/**
 * Switches notifications by the descriptor on or off. Without them a loop that takes completions
 * anyway saves system calls. The rule: switch them off; take until there are none; switch them on;
 * take once more; wait for the descriptor only if there was nothing.
 *
 * Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`.
 */
int qpair_queue_set_notifications(struct qpair_queue *queue, bool on, struct qpair_error **error);

/**
 * Stores the number of calls whose completions were not taken yet.
 *
 * Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`.
 */
int qpair_queue_in_flight(struct qpair_queue *queue, size_t *calls, struct qpair_error **error);

/**
 * Takes up to `max` completions without waiting, stores them in the array `completions`, and
 * stores their number in `*taken`. Set the `size` of the first one.
 *
 * Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`; those of the calls are in their completions.
 */
int qpair_queue_take(struct qpair_queue *queue,
                     struct qpair_completion *completions,
                     size_t max,
                     size_t *taken,
                     struct qpair_error **error);

/**
 * Takes at least `min` and up to `max` completions like `qpair_queue_take`. Waits for them, but no
 * longer than `timeout_us` microseconds (-1: without limit), and not for more calls than are in
 * flight.
 *
 * Errors: as `qpair_queue_take`.
 */
int qpair_queue_wait(struct qpair_queue *queue,
                     struct qpair_completion *completions,
                     size_t min,
                     size_t max,
                     int64_t timeout_us,
                     size_t *taken,
                     struct qpair_error **error);

/**
 * Begins to look a key up; the completion has the value. If `now` is not null and the value is in
 * memory, the call ends at once: its completion is stored in `*now` and does not come by the
 * queue. Otherwise the operation of `*now` is `QPAIR_OPERATION_NONE`.
 *
 * Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`; in the completion those of `qpair_get`.
 */
int qpair_get_async(struct qpair_queue *queue,
                    struct qpair_table *table,
                    const void *key,
                    size_t key_len,
                    uint64_t user_data,
                    struct qpair_completion *now,
                    struct qpair_error **error);

/**
 * Begins to insert or replace a record. Key and value are copied before the call returns.
 *
 * Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`; in the completion those of `qpair_put`.
 */
int qpair_put_async(struct qpair_queue *queue,
                    struct qpair_table *table,
                    const void *key,
                    size_t key_len,
                    const void *value,
                    size_t value_len,
                    uint64_t user_data,
                    struct qpair_error **error);

/**
 * Begins to remove a record.
 *
 * Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`; in the completion those of `qpair_delete`.
 */
int qpair_delete_async(struct qpair_queue *queue,
                       struct qpair_table *table,
                       const void *key,
                       size_t key_len,
                       uint64_t user_data,
                       struct qpair_error **error);

/**
 * Begins to make all changes of a batch. The batch may be used again when the call returns.
 *
 * Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`; in the completion those of `qpair_write`.
 */
int qpair_write_async(struct qpair_queue *queue,
                      struct qpair_store *store,
                      struct qpair_batch *batch,
                      uint64_t user_data,
                      struct qpair_error **error);

/**
 * Begins to commit a transaction. Its handle is closed when the call returns `QPAIR_OK`.
 *
 * Errors: `QPAIR_MISUSE` also within the function of `qpair_transact`, `QPAIR_BUSY`,
 * `QPAIR_FORKED`; in the completion those of `qpair_commit`.
 */
int qpair_commit_async(struct qpair_queue *queue,
                       struct qpair_transaction *transaction,
                       uint64_t user_data,
                       struct qpair_error **error);

/**
 * Begins a range of a table: each leaf is read when the iteration gets there, in its state of that
 * moment. `options` may be null for all records. Close the range with `qpair_range_close`.
 *
 * Errors: `QPAIR_INVALID` if the range ends before it begins, or has a prefix and bounds.
 */
int qpair_range_of_table(struct qpair_table *table,
                         const struct qpair_range_options *options,
                         struct qpair_range **range,
                         struct qpair_error **error);

/**
 * Begins a range of a table as a transaction sees it. The range must not be used after the
 * transaction has ended. It may miss what the transaction writes while the range is open.
 *
 * Errors: as `qpair_range_of_table`; `QPAIR_MISUSE` for the transaction.
 */
int qpair_range_of_transaction(struct qpair_transaction *transaction,
                               struct qpair_table *table,
                               const struct qpair_range_options *options,
                               struct qpair_range **range,
                               struct qpair_error **error);

/**
 * Begins a range of a table as a snapshot has it. The range keeps the snapshot.
 *
 * Errors: as `qpair_range_of_table`.
 */
int qpair_range_of_snapshot(struct qpair_snapshot *snapshot,
                            struct qpair_table *table,
                            const struct qpair_range_options *options,
                            struct qpair_range **range,
                            struct qpair_error **error);

/**
 * Goes to the next record and lends its key and value, until the next call with the range. After
 * the last record `*key` and `*value` are null, and the lengths 0.
 *
 * Errors: as `qpair_get`; `QPAIR_SNAPSHOT_LOST`. After an error the range has ended.
 */
int qpair_range_next(struct qpair_range *range,
                     const void **key,
                     size_t *key_len,
                     const void **value,
                     size_t *value_len,
                     struct qpair_error **error);

/**
 * Closes a range. Does nothing if `range` is null.
 *
 * Errors: `QPAIR_MISUSE` if it was closed before; `QPAIR_BUSY`.
 */
int qpair_range_close(struct qpair_range *range, struct qpair_error **error);

/**
 * Removes the records of a range of keys from a table, in transactions of up to 1,000 records
 * each. Flags and limits other than `QPAIR_RANGE_AFTER_FROM` and `QPAIR_RANGE_WITH_TO` are
 * refused. `deleted`, which may be null, receives the number of records.
 *
 * Errors: as `qpair_range_of_table` and `qpair_delete`. After an error some of the records may be
 * gone.
 */
int qpair_delete_range(struct qpair_table *table,
                       const struct qpair_range_options *options,
                       uint64_t *deleted,
                       struct qpair_error **error);

/**
 * Takes a snapshot of all that is committed. The store keeps the older values that it needs until
 * `qpair_snapshot_release`.
 *
 * Errors: `QPAIR_CLOSED`.
 */
int qpair_snapshot_take(struct qpair_store *store,
                        struct qpair_snapshot **snapshot,
                        struct qpair_error **error);

/**
 * Copies the value of a key, as the snapshot has it, into a buffer, like `qpair_get`.
 *
 * Errors: as `qpair_get`; `QPAIR_SNAPSHOT_LOST` if the snapshot was given up.
 */
int qpair_snapshot_get(struct qpair_snapshot *snapshot,
                       struct qpair_table *table,
                       const void *key,
                       size_t key_len,
                       void *buffer,
                       size_t capacity,
                       size_t *value_len,
                       struct qpair_error **error);

/**
 * Lends the value of a key, as the snapshot has it, like `qpair_get_lent`.
 *
 * Errors: as `qpair_snapshot_get`.
 */
int qpair_snapshot_get_lent(struct qpair_snapshot *snapshot,
                            struct qpair_table *table,
                            const void *key,
                            size_t key_len,
                            struct qpair_value **value,
                            const void **data,
                            size_t *value_len,
                            struct qpair_error **error);

/**
 * Releases a snapshot. Does nothing if `snapshot` is null.
 *
 * Errors: `QPAIR_MISUSE` if it was released before; `QPAIR_BUSY` if another thread is in a call
 * with it.
 */
int qpair_snapshot_release(struct qpair_snapshot *snapshot, struct qpair_error **error);

/**
 * Opens a store, or creates it.
 *
 * `specifier` is a path (a file or a block device), or a specifier that begins with a kind of
 * device: "ram:size=64MiB", "nvme:0000:01:00.0", "stripe:unit=64KiB:A+B" for several members.
 * `options` may be null. Close the store with `qpair_close`: a program that ends without it has
 * its store recovered at the next opening.
 *
 * Errors: `QPAIR_NOT_FOUND`, `QPAIR_NOT_A_STORE`, `QPAIR_VERSION`, `QPAIR_MEMBER`,
 * `QPAIR_UNCLEAN`, `QPAIR_CORRUPT`, `QPAIR_EXISTS`, `QPAIR_BUSY`, `QPAIR_DENIED`,
 * `QPAIR_READ_ONLY` about the files and devices; `QPAIR_INVALID`, `QPAIR_NO_MEMORY`,
 * `QPAIR_NO_SPACE`, `QPAIR_UNSUPPORTED`, `QPAIR_LIMIT` about the options and the machine;
 * `QPAIR_IO`.
 */
int qpair_open(const char *specifier,
               const struct qpair_options *options,
               struct qpair_store **store,
               struct qpair_error **error);

/**
 * Closes a store: all changes survive power loss when the call returns `QPAIR_OK`. The handle is
 * closed also after an error, except `QPAIR_BUSY`. Tables, transactions and snapshots of the store
 * return `QPAIR_CLOSED` from then on, and the devices are released when these are closed too.
 *
 * Errors: `QPAIR_BUSY` if another thread is in a call with this handle; the error of a write or
 * flush that failed, now or earlier; `QPAIR_NOT_FOUND` if a file of the store was removed.
 */
int qpair_close(struct qpair_store *store, struct qpair_error **error);

/**
 * Opens a table of the store, or makes it. Close it with `qpair_table_close`.
 *
 * Errors: `QPAIR_INVALID` for the name, `QPAIR_READ_ONLY`, `QPAIR_NO_SPACE`, `QPAIR_CLOSED`.
 */
int qpair_table_open(struct qpair_store *store,
                     const char *name,
                     struct qpair_table **table,
                     struct qpair_error **error);

/**
 * Opens a table whose values are compressed, each by itself, or makes it. `compression` is "none",
 * "lz4" or "zstd"; a table keeps it for good, and all calls take and give values as they were put.
 *
 * Errors: `QPAIR_EXISTS` if there is a table of this name with another compression;
 * `QPAIR_INVALID` for the compression; as `qpair_table_open`.
 */
int qpair_table_open_compressed(struct qpair_store *store,
                                const char *name,
                                const char *compression,
                                struct qpair_table **table,
                                struct qpair_error **error);

/**
 * Opens a table whose records expire, or makes it: each is gone `ttl_ms` milliseconds after it was
 * put last. `compression` is as for `qpair_table_open_compressed`. A table keeps both for good.
 *
 * Errors: `QPAIR_EXISTS` if there is a table of this name with another time to live or
 * compression; `QPAIR_INVALID` for less than 1,000 ms, and for the compression; as
 * `qpair_table_open`.
 */
int qpair_table_open_expiring(struct qpair_store *store,
                              const char *name,
                              const char *compression,
                              uint64_t ttl_ms,
                              struct qpair_table **table,
                              struct qpair_error **error);

/**
 * Opens a table only if it exists.
 *
 * Errors: `QPAIR_NOT_FOUND` if it does not exist; as `qpair_table_open`.
 */
int qpair_table_open_existing(struct qpair_store *store,
                              const char *name,
                              struct qpair_table **table,
                              struct qpair_error **error);

/**
 * Removes a table with all its records.
 *
 * Errors: `QPAIR_NOT_FOUND`, `QPAIR_READ_ONLY`, `QPAIR_CLOSED`.
 */
int qpair_table_drop(struct qpair_store *store, const char *name, struct qpair_error **error);

/**
 * Renames a table. Open handles of it continue to work.
 *
 * Errors: `QPAIR_NOT_FOUND`, `QPAIR_EXISTS`, `QPAIR_INVALID`, `QPAIR_READ_ONLY`, `QPAIR_CLOSED`.
 */
int qpair_table_rename(struct qpair_store *store,
                       const char *from,
                       const char *to,
                       struct qpair_error **error);

/**
 * Lends a text with the names of all tables, in order, as a JSON array.
 *
 * Errors: `QPAIR_CLOSED`, `QPAIR_IO`, `QPAIR_CORRUPT`.
 */
int qpair_table_names(struct qpair_store *store, struct qpair_value **names, struct qpair_error **error);

/**
 * Stores whether the store refuses changes: it was opened read-only, or a write has failed.
 *
 * Errors: `QPAIR_MISUSE`, `QPAIR_FORKED`.
 */
int qpair_is_read_only(struct qpair_store *store, bool *read_only, struct qpair_error **error);

/**
 * Makes all changes of a batch, in their order, or none of them. The batch keeps its changes, and
 * can be written again or cleared.
 *
 * Errors: those of `qpair_put`; `QPAIR_CONFLICT`; `QPAIR_TOO_LARGE`; `QPAIR_INVALID` if a table
 * belongs to another store.
 */
int qpair_write(struct qpair_store *store, struct qpair_batch *batch, struct qpair_error **error);

/**
 * Makes a checkpoint, from which a later recovery starts.
 *
 * Errors: `QPAIR_NO_SPACE`, `QPAIR_IO`, `QPAIR_READ_ONLY`, `QPAIR_CLOSED`.
 */
int qpair_checkpoint(struct qpair_store *store, struct qpair_error **error);

/**
 * Copies the store as of one moment to a new store on `target`, a path or specifier, while other
 * threads read and write. An existing target is replaced only with `force`. `progress` may be
 * null; it is told of pages.
 *
 * Errors: `QPAIR_EXISTS`, `QPAIR_NO_SPACE`, `QPAIR_DENIED`, `QPAIR_CORRUPT`, `QPAIR_IO`;
 * `QPAIR_INTERRUPTED` if `progress` has stopped it. Files that the call has created are then
 * removed.
 */
int qpair_backup(struct qpair_store *store,
                 const char *target,
                 bool force,
                 qpair_progress progress,
                 void *context,
                 struct qpair_error **error);

/**
 * Moves pages to the front of the store's files and truncates them. `progress` may be null; it is
 * told of pages. `bytes_before` and `bytes_after`, which may be null, receive the size of the
 * store in bytes.
 *
 * Errors: `QPAIR_READ_ONLY`, `QPAIR_NO_SPACE`, `QPAIR_IO`, `QPAIR_CLOSED`; `QPAIR_INTERRUPTED` if
 * `progress` has stopped it, with what was moved so far.
 */
int qpair_compact(struct qpair_store *store,
                  qpair_progress progress,
                  void *context,
                  uint64_t *bytes_before,
                  uint64_t *bytes_after,
                  struct qpair_error **error);

/**
 * Lends a text with the counters of the store since it was opened and its present state.
 *
 * Errors: `QPAIR_MISUSE` for another form, `QPAIR_CLOSED`.
 */
int qpair_statistics(struct qpair_store *store,
                     uint32_t form,
                     struct qpair_value **statistics,
                     struct qpair_error **error);

/**
 * Returns the number of handles of all kinds that this process has open, for tests of programs.
 */
size_t qpair_open_handles(void);

/**
 * Closes a table's handle. Does nothing if `table` is null.
 *
 * Errors: `QPAIR_BUSY` if another thread is in a call with this handle.
 */
int qpair_table_close(struct qpair_table *table, struct qpair_error **error);

/**
 * Copies the value of a key into `buffer`, which has room for `capacity` bytes, and stores the
 * value's length in `*value_len`. A value longer than `capacity` is cut, and `*value_len` is
 * greater than `capacity`: call again with more room. Without a record `*value_len` is
 * `QPAIR_NO_RECORD`. `buffer` may be null if `capacity` is 0.
 *
 * Errors: `QPAIR_IO`, `QPAIR_CORRUPT`, `QPAIR_CLOSED`; `QPAIR_READ_ONLY` if the value did not
 * become durable, because the log could not be written.
 */
int qpair_get(struct qpair_table *table,
              const void *key,
              size_t key_len,
              void *buffer,
              size_t capacity,
              size_t *value_len,
              struct qpair_error **error);

/**
 * Lends the value of a key: `*data` is valid until `*value` is released. Without a record `*value`
 * and `*data` are null, and `*value_len` is `QPAIR_NO_RECORD`. `data` and `value_len` may be null.
 *
 * Errors: as `qpair_get`.
 */
int qpair_get_lent(struct qpair_table *table,
                   const void *key,
                   size_t key_len,
                   struct qpair_value **value,
                   const void **data,
                   size_t *value_len,
                   struct qpair_error **error);

/**
 * Inserts or replaces a record. `replaced`, which may be null, receives whether there was one.
 * Waits while a transaction has the record locked.
 *
 * Errors: `QPAIR_KEY_TOO_LONG`, `QPAIR_VALUE_TOO_LONG`, `QPAIR_NO_SPACE`, `QPAIR_READ_ONLY`,
 * `QPAIR_IO`, `QPAIR_TIMED_OUT`, `QPAIR_CLOSED`. After an error the record is unchanged, except
 * that after `QPAIR_READ_ONLY` the new value may be there when the store is opened again.
 */
int qpair_put(struct qpair_table *table,
              const void *key,
              size_t key_len,
              const void *value,
              size_t value_len,
              bool *replaced,
              struct qpair_error **error);

/**
 * Inserts a record if the key has none. `inserted`, which may be null, receives whether it was.
 *
 * Errors: as `qpair_put`.
 */
int qpair_insert(struct qpair_table *table,
                 const void *key,
                 size_t key_len,
                 const void *value,
                 size_t value_len,
                 bool *inserted,
                 struct qpair_error **error);

/**
 * Removes a record. `deleted`, which may be null, receives whether there was one.
 *
 * Errors: as `qpair_put`.
 */
int qpair_delete(struct qpair_table *table,
                 const void *key,
                 size_t key_len,
                 bool *deleted,
                 struct qpair_error **error);

/**
 * Replaces a record if its value is the expected one. Null with a length of 0 stands for no
 * record, in both `expected` and `value`; an empty value has another pointer. `swapped` receives
 * whether it was replaced.
 *
 * Errors: as `qpair_put`.
 */
int qpair_compare_and_swap(struct qpair_table *table,
                           const void *key,
                           size_t key_len,
                           const void *expected,
                           size_t expected_len,
                           const void *value,
                           size_t value_len,
                           bool *swapped,
                           struct qpair_error **error);

/**
 * Stores an estimate of the number of records in a table, from up to 64 of its leaves.
 *
 * Errors: as `qpair_get`.
 */
int qpair_count_estimate(struct qpair_table *table, uint64_t *records, struct qpair_error **error);

/**
 * Runs a transaction and commits it, and runs it again if it met a conflict. `run` makes all its
 * changes with the transaction that it is given, which it must not end, and must not keep: the
 * handle is closed when `run` returns. `options` may be null.
 *
 * Errors: the code that `run` returned; `QPAIR_CONFLICT` if all attempts met one; as
 * `qpair_commit`.
 */
int qpair_transact(struct qpair_store *store,
                   const struct qpair_transaction_options *options,
                   qpair_transact_function run,
                   void *context,
                   struct qpair_error **error);

/**
 * Begins a transaction. End it with `qpair_commit` or `qpair_rollback`. `options` may be null.
 * `qpair_transact` runs a transaction again after a conflict, which is simpler.
 *
 * Errors: `QPAIR_INVALID` for an option.
 */
int qpair_begin(struct qpair_store *store,
                const struct qpair_transaction_options *options,
                struct qpair_transaction **transaction,
                struct qpair_error **error);

/**
 * Makes all writes of a transaction visible to every reader, at once. The handle is closed, also
 * after an error, except `QPAIR_BUSY` and `QPAIR_MISUSE`. `timestamp`, which may be null, receives
 * the commit's timestamp: of two commits the later one has the greater timestamp.
 *
 * Errors: `QPAIR_CONFLICT`: nothing was changed, and the transaction can be run again.
 * `QPAIR_NO_SPACE`, `QPAIR_READ_ONLY`, `QPAIR_IO`, `QPAIR_CLOSED`.
 */
int qpair_commit(struct qpair_transaction *transaction, uint64_t *timestamp, struct qpair_error **error);

/**
 * Discards all writes of a transaction, and closes the handle. Does nothing if `transaction` is
 * null.
 *
 * Errors: `QPAIR_MISUSE` within the function of `qpair_transact`; `QPAIR_BUSY`.
 */
int qpair_rollback(struct qpair_transaction *transaction, struct qpair_error **error);

/**
 * Copies the value of a key, as the transaction sees it, into a buffer, like `qpair_get`.
 *
 * Errors: as `qpair_get`; `QPAIR_SNAPSHOT_LOST`; `QPAIR_CONFLICT` after a conflict.
 */
int qpair_transaction_get(struct qpair_transaction *transaction,
                          struct qpair_table *table,
                          const void *key,
                          size_t key_len,
                          void *buffer,
                          size_t capacity,
                          size_t *value_len,
                          struct qpair_error **error);

/**
 * Lends the value of a key, as the transaction sees it, like `qpair_get_lent`. With `for_update`
 * the row is locked first, until the transaction ends.
 *
 * Errors: as `qpair_transaction_get`; with `for_update` also those of `qpair_transaction_put`.
 */
int qpair_transaction_get_lent(struct qpair_transaction *transaction,
                               struct qpair_table *table,
                               const void *key,
                               size_t key_len,
                               bool for_update,
                               struct qpair_value **value,
                               const void **data,
                               size_t *value_len,
                               struct qpair_error **error);

/**
 * Inserts or replaces a record in a transaction.
 *
 * Errors: `QPAIR_CONFLICT` if another transaction was first: roll back and begin again;
 * `QPAIR_TIMED_OUT`; `QPAIR_TOO_LARGE`; `QPAIR_KEY_TOO_LONG`; `QPAIR_VALUE_TOO_LONG`;
 * `QPAIR_READ_ONLY`; `QPAIR_CLOSED`.
 */
int qpair_transaction_put(struct qpair_transaction *transaction,
                          struct qpair_table *table,
                          const void *key,
                          size_t key_len,
                          const void *value,
                          size_t value_len,
                          struct qpair_error **error);

/**
 * Inserts a record in a transaction if the key has none. `inserted`, which may be null, receives
 * whether it was.
 *
 * Errors: as `qpair_transaction_put`.
 */
int qpair_transaction_insert(struct qpair_transaction *transaction,
                             struct qpair_table *table,
                             const void *key,
                             size_t key_len,
                             const void *value,
                             size_t value_len,
                             bool *inserted,
                             struct qpair_error **error);

/**
 * Removes a record in a transaction. `deleted`, which may be null, receives whether there was one.
 *
 * Errors: as `qpair_transaction_put`.
 */
int qpair_transaction_delete(struct qpair_transaction *transaction,
                             struct qpair_table *table,
                             const void *key,
                             size_t key_len,
                             bool *deleted,
                             struct qpair_error **error);

/**
 * Replaces a record in a transaction if its value is the expected one, like
 * `qpair_compare_and_swap`.
 *
 * Errors: as `qpair_transaction_put`.
 */
int qpair_transaction_compare_and_swap(struct qpair_transaction *transaction,
                                       struct qpair_table *table,
                                       const void *key,
                                       size_t key_len,
                                       const void *expected,
                                       size_t expected_len,
                                       const void *value,
                                       size_t value_len,
                                       bool *swapped,
                                       struct qpair_error **error);

/**
 * Returns a value's bytes, which are there until it is released. Returns null if `value` is null
 * or was released.
 */
const void *qpair_value_data(const struct qpair_value *value);

/**
 * Returns a value's text, which ends with a zero byte: for values that a function describes as
 * text. It is there until the value is released. Returns null if `value` is null or was released.
 */
const char *qpair_value_text(const struct qpair_value *value);

/**
 * Returns a value's length in bytes (of a text with its zero byte), or 0 if `value` is null or was
 * released.
 */
size_t qpair_value_len(const struct qpair_value *value);

/**
 * Releases a value. Its bytes must not be used afterwards. Does nothing if `value` is null.
 *
 * Errors: `QPAIR_MISUSE` if it was released before.
 */
int qpair_value_release(struct qpair_value *value, struct qpair_error **error);

/**
 * Returns the version of the library, such as "0.1.0". The text is constant.
 */
const char *qpair_version(void);

/**
 * Returns the version of the interface of the library in use. It is at least the
 * `QPAIR_ABI_VERSION` of the header that a program was compiled with, unless the library is older:
 * then functions may be missing.
 */
uint32_t qpair_abi_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* QPAIR_H */
