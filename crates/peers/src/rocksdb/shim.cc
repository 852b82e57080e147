// What a transaction of RocksDB can do and its C interface does not offer: taking a snapshot after its first locks, and a lock
// without a read. RocksDB's c.cc wraps a transaction as a structure whose one member is the pointer to it; the test
// `locks_before_the_first_read_do_not_conflict` fails where that is not so.
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <rocksdb/c.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>
#include <rocksdb/status.h>
#include <rocksdb/utilities/transaction.h>

namespace {

rocksdb::Transaction *inner(rocksdb_transaction_t *transaction) {
    return *reinterpret_cast<rocksdb::Transaction **>(transaction);
}

} // namespace

extern "C" void peers_rocksdb_set_snapshot(rocksdb_transaction_t *transaction) { inner(transaction)->SetSnapshot(); }

// The message is the caller's to free with rocksdb_free, which is free(3).
extern "C" void peers_rocksdb_lock(rocksdb_transaction_t *transaction, const char *key, size_t key_len, char **error) {
    std::string *unread = nullptr;
    rocksdb::Status status =
        inner(transaction)->GetForUpdate(rocksdb::ReadOptions(), rocksdb::Slice(key, key_len), unread);
    if (!status.ok() && !status.IsNotFound())
        *error = strdup(status.ToString().c_str());
}
