package io.qpair;

import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;

/** The records of a range of keys, in order. Its calls exclude one another: the library lends a record only until the next call. */
public final class Range extends Handle implements Iterator<Entry> {
    private static final byte[] EMPTY = new byte[0];
    private Entry next;
    private boolean ended;

    private Range(long handle) {
        super(Binding.Kind.RANGE, handle);
    }

    static Range of(long snapshot, long table, byte[] from, byte[] to, boolean withTo, boolean reverse) {
        boolean none = from != null && to != null && (Arrays.compareUnsigned(from, to) > 0 || Arrays.equals(from, to) && !withTo);
        if (none) {
            // The library refuses such bounds; an iteration over them has no records.
            Range range = new Range(Library.CALLS.range(snapshot, table, EMPTY, EMPTY, Binding.RANGE_WITH_TO, 0));
            range.ended = true;
            return range;
        }
        int flags = (withTo && to != null ? Binding.RANGE_WITH_TO : 0) | (reverse ? Binding.RANGE_REVERSE : 0);
        return new Range(Library.CALLS.range(snapshot, table, from, to, flags, 0));
    }

    @Override
    public synchronized boolean hasNext() {
        if (next == null && !ended) {
            next = Library.CALLS.rangeNext(handle());
            ended = next == null;
        }
        return next != null;
    }

    /** Returns the record that {@link #next} will return, or null after the last one. */
    public synchronized Entry peek() {
        return hasNext() ? next : null;
    }

    @Override
    public synchronized Entry next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        Entry entry = next;
        next = null;
        return entry;
    }

    @Override
    public synchronized void close() {
        super.close();
        next = null;
        ended = true;
    }
}
