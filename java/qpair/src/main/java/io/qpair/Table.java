package io.qpair;

import java.nio.ByteBuffer;

/** A table: an ordered map from keys to values, both byte strings. Any number of threads may use it at once. */
public final class Table extends Handle {
    Table(long handle) {
        super(Binding.Kind.TABLE, handle);
    }

    /** Returns the value of a key, or null if it has none. */
    public byte[] get(byte[] key) {
        return Library.CALLS.get(Binding.TABLE, 0, handle(), key);
    }

    /**
     * Copies the value of a key to the position of a buffer, as far as there is room, and moves that position by the bytes copied.
     *
     * <p>The key is the bytes of its buffer from position to limit. Direct buffers are passed without a copy. No other thread may change either
     * buffer during the call, and nobody may free its memory.
     *
     * @return the length of the whole value, or -1 if the key has none; if it is greater than the room was, call again with more
     */
    public int get(ByteBuffer key, ByteBuffer value) {
        return Buffers.get(Binding.TABLE, 0, handle(), key, value);
    }

    /** Inserts or replaces a record, and returns whether there was one. */
    public boolean put(byte[] key, byte[] value) {
        return Library.CALLS.put(Binding.TABLE, 0, handle(), key, value);
    }

    /** Inserts or replaces a record from buffers, as {@link #get(ByteBuffer, ByteBuffer)} has them. No position moves. */
    public boolean put(ByteBuffer key, ByteBuffer value) {
        return Buffers.put(Binding.TABLE, 0, handle(), key, value);
    }

    /** Removes a record, and returns whether there was one. */
    public boolean delete(byte[] key) {
        return Library.CALLS.delete(Binding.TABLE, 0, handle(), key);
    }

    /** Removes the record of a key in a buffer, whose position does not move, and returns whether there was one. */
    public boolean delete(ByteBuffer key) {
        return Buffers.delete(Binding.TABLE, 0, handle(), key);
    }

    /** Returns an estimate of the number of records. */
    public long countEstimate() {
        return Library.CALLS.countEstimate(handle());
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
        return Library.CALLS.deleteRange(handle(), from, to);
    }
}
