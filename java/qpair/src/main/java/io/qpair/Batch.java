package io.qpair;

/** Changes that {@link #write} makes all at once. A batch belongs to one thread at a time. */
public final class Batch extends Handle {
    private final long store;

    Batch(long store, long handle) {
        super(Calls.Kind.BATCH, handle);
        this.store = store;
    }

    /** Adds a change that inserts or replaces a record. */
    public void put(Table table, byte[] key, byte[] value) {
        Calls.batchPut(handle(), table.handle(), key, value);
    }

    /** Adds a change that removes a record, if there is one. */
    public void delete(Table table, byte[] key) {
        Calls.batchDelete(handle(), table.handle(), key);
    }

    /** Makes all changes in their order, or none of them. The batch keeps them. */
    public void write() {
        Calls.write(store, handle());
    }

    /** Removes all changes from the batch. */
    public void clear() {
        Calls.batchClear(handle());
    }
}
