package io.qpair;

import java.nio.ByteBuffer;

/** Changes that {@link #write} makes all at once. A batch belongs to one thread at a time. */
public final class Batch extends Handle {
    private final long store;

    Batch(long store, long handle) {
        super(Binding.Kind.BATCH, handle);
        this.store = store;
    }

    /** Adds a change that inserts or replaces a record. */
    public void put(Table table, byte[] key, byte[] value) {
        Library.CALLS.put(Binding.BATCH, handle(), table.handle(), key, value);
    }

    /** Adds a change that inserts or replaces a record from buffers, which are copied. */
    public void put(Table table, ByteBuffer key, ByteBuffer value) {
        Buffers.put(Binding.BATCH, handle(), table.handle(), key, value);
    }

    /** Adds a change that removes a record, if there is one. */
    public void delete(Table table, byte[] key) {
        Library.CALLS.delete(Binding.BATCH, handle(), table.handle(), key);
    }

    /** Adds a change that removes the record of a key in a buffer, if there is one. */
    public void delete(Table table, ByteBuffer key) {
        Buffers.delete(Binding.BATCH, handle(), table.handle(), key);
    }

    /** Makes all changes in their order, or none of them. The batch keeps them. */
    public void write() {
        Library.CALLS.write(store, handle());
    }

    /** Removes all changes from the batch. */
    public void clear() {
        Library.CALLS.batchClear(handle());
    }
}
