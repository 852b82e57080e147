package io.qpair;

import java.nio.ByteBuffer;

/** The store as it was at one point. Any number of threads may use it at once. */
public final class Snapshot extends Handle {
    Snapshot(long handle) {
        super(Binding.Kind.SNAPSHOT, handle);
    }

    /** Returns the value of a key as the snapshot has it, or null. */
    public byte[] get(Table table, byte[] key) {
        return Library.CALLS.get(Binding.SNAPSHOT, handle(), table.handle(), key);
    }

    /** Copies the value of a key as the snapshot has it, like {@link Table#get(ByteBuffer, ByteBuffer)}. */
    public int get(Table table, ByteBuffer key, ByteBuffer value) {
        return Buffers.get(Binding.SNAPSHOT, handle(), table.handle(), key, value);
    }

    /** Returns the records of a range of keys, like {@link Table#range}. The range keeps the snapshot. */
    public Range range(Table table, byte[] from, byte[] to, boolean withTo, boolean reverse) {
        return Range.of(handle(), table.handle(), from, to, withTo, reverse);
    }
}
