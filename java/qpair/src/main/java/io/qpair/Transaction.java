package io.qpair;

import java.nio.ByteBuffer;

/** A transaction with snapshot isolation. It belongs to one thread at a time. Closing it without a commit discards its writes. */
public final class Transaction extends Handle {
    Transaction(long handle) {
        super(Binding.Kind.TRANSACTION, handle);
    }

    /** Returns the value of a key as the transaction sees it, or null. */
    public byte[] get(Table table, byte[] key) {
        return Library.CALLS.get(Binding.TRANSACTION, handle(), table.handle(), key);
    }

    /** Copies the value of a key as the transaction sees it, like {@link Table#get(ByteBuffer, ByteBuffer)}. */
    public int get(Table table, ByteBuffer key, ByteBuffer value) {
        return Buffers.get(Binding.TRANSACTION, handle(), table.handle(), key, value);
    }

    /** Inserts or replaces a record. */
    public void put(Table table, byte[] key, byte[] value) {
        Library.CALLS.put(Binding.TRANSACTION, handle(), table.handle(), key, value);
    }

    /** Inserts or replaces a record from buffers, like {@link Table#put(ByteBuffer, ByteBuffer)}. */
    public void put(Table table, ByteBuffer key, ByteBuffer value) {
        Buffers.put(Binding.TRANSACTION, handle(), table.handle(), key, value);
    }

    /** Removes a record, and returns whether there was one. */
    public boolean delete(Table table, byte[] key) {
        return Library.CALLS.delete(Binding.TRANSACTION, handle(), table.handle(), key);
    }

    /** Removes the record of a key in a buffer, and returns whether there was one. */
    public boolean delete(Table table, ByteBuffer key) {
        return Buffers.delete(Binding.TRANSACTION, handle(), table.handle(), key);
    }

    /**
     * Makes all writes visible at once, and closes the transaction.
     *
     * @return the commit's timestamp
     * @throws QpairException with {@link QpairException#CONFLICT} if another transaction was first: run this one again
     */
    public long commit() {
        try {
            long timestamp = Library.CALLS.commit(handle());
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
