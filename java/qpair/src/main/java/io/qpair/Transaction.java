package io.qpair;

/** A transaction with snapshot isolation. It belongs to one thread at a time. Closing it without a commit discards its writes. */
public final class Transaction extends Handle {
    Transaction(long handle) {
        super(Calls.Kind.TRANSACTION, handle);
    }

    /** Returns the value of a key as the transaction sees it, or null. */
    public byte[] get(Table table, byte[] key) {
        return Calls.getWithin(true, handle(), table.handle(), key);
    }

    /** Inserts or replaces a record. */
    public void put(Table table, byte[] key, byte[] value) {
        Calls.transactionPut(handle(), table.handle(), key, value);
    }

    /** Removes a record, and returns whether there was one. */
    public boolean delete(Table table, byte[] key) {
        return Calls.transactionDelete(handle(), table.handle(), key);
    }

    /**
     * Makes all writes visible at once, and closes the transaction.
     *
     * @return the commit's timestamp
     * @throws QpairException with {@link QpairException#CONFLICT} if another transaction was first: run this one again
     */
    public long commit() {
        try {
            long timestamp = Calls.commit(handle());
            forget();
            return timestamp;
        } catch (QpairException error) {
            if (error.code() != QpairException.BUSY && error.code() != QpairException.MISUSE) {
                forget();
            }
            throw error;
        }
    }
}
