package io.qpair;

/** A table: an ordered map from keys to values, both byte strings. Any number of threads may use it at once. */
public final class Table extends Handle {
    Table(long handle) {
        super(Calls.Kind.TABLE, handle);
    }

    /** Returns the value of a key, or null if it has none. */
    public byte[] get(byte[] key) {
        return Calls.get(handle(), key);
    }

    /** Inserts or replaces a record, and returns whether there was one. */
    public boolean put(byte[] key, byte[] value) {
        return Calls.put(handle(), key, value);
    }

    /** Removes a record, and returns whether there was one. */
    public boolean delete(byte[] key) {
        return Calls.delete(handle(), key);
    }

    /** Returns an estimate of the number of records. */
    public long countEstimate() {
        return Calls.countEstimate(handle());
    }

    /** Returns all records in ascending order. */
    public Range range() {
        return range(null, null, false, false);
    }

    /**
     * Returns the records of a range of keys. Each part is read when the iteration gets there.
     *
     * @param from the first key, or null for no bound
     * @param to the key at which the range ends, or null for no bound
     * @param withTo whether the key {@code to} is part of the range
     * @param reverse whether records come in descending order
     */
    public Range range(byte[] from, byte[] to, boolean withTo, boolean reverse) {
        return Range.of(0, handle(), from, to, withTo, reverse);
    }

    /** Removes the records from one key to another (excluded), in transactions of up to 1,000 records, and returns their number. */
    public long deleteRange(byte[] from, byte[] to) {
        return Calls.deleteRange(handle(), from, to);
    }
}
