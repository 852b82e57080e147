package io.qpair;

import java.util.LinkedHashMap;
import java.util.Map;

/** An open store. Any number of threads may use it at once. */
public final class Store extends Handle {
    private Store(long handle) {
        super(Binding.Kind.STORE, handle);
    }

    /** Opens the store on a path or specifier, or creates it, with the default options. */
    public static Store open(String specifier) {
        return open(specifier, Map.of());
    }

    /** Opens a store, or creates it. Options have the names of the C interface, such as {@code memory} = {@code 64MiB}. */
    public static Store open(String specifier, Map<String, String> options) {
        String[] flat = new String[options.size() * 2];
        int at = 0;
        for (Map.Entry<String, String> option : new LinkedHashMap<>(options).entrySet()) {
            flat[at++] = option.getKey();
            flat[at++] = option.getValue();
        }
        return new Store(Library.CALLS.open(specifier, flat));
    }

    /** Opens a table, or makes it. */
    public Table table(String name) {
        return new Table(Library.CALLS.tableOpen(handle(), name));
    }

    /** Removes a table with all its records, if it exists, and returns whether it did. */
    public boolean drop(String name) {
        try {
            Library.CALLS.tableDrop(handle(), name);
            return true;
        } catch (QpairException error) {
            if (error.code() == QpairException.NOT_FOUND) {
                return false;
            }
            throw error;
        }
    }

    /** Returns the names of all tables as a JSON array. */
    public String tableNames() {
        return Library.CALLS.tableNames(handle());
    }

    /** Returns the counters of the store and its present state, as a JSON object. */
    public String statistics() {
        return Library.CALLS.statistics(handle(), 1);
    }

    /** Returns a batch without changes. */
    public Batch batch() {
        return new Batch(handle(), Library.CALLS.batchNew());
    }

    /** Begins a transaction with snapshot isolation. */
    public Transaction begin() {
        return new Transaction(Library.CALLS.begin(handle()));
    }

    /** Takes a snapshot of all that is committed. */
    public Snapshot snapshot() {
        return new Snapshot(Library.CALLS.snapshotTake(handle()));
    }

    /** Makes a checkpoint, from which a later recovery starts. */
    public void checkpoint() {
        Library.CALLS.checkpoint(handle());
    }

    /** Returns the number of handles of all kinds that this process has open, for tests. */
    public static long openHandles() {
        return Library.CALLS.openHandles();
    }
}
