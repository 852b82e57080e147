package io.qpair.kafka.streams;

import io.qpair.Entry;
import java.util.function.LongFunction;

/**
 * The segments of a store of windows or sessions: rows whose keys begin with their time divided by the segment interval. The stream time's retention
 * decides which rows reads return; segments that it has left behind are removed.
 */
final class Segments {
    private static final long NONE = -1;
    /** What is added to a segment's number in the keys of the index by time, which so lie behind all rows. */
    static final long BY_TIME = 1L << 62;

    private final long retention;
    private final long interval;
    private final boolean byTime;
    private Rows rows;
    private volatile long streamTime = NONE;
    private volatile long last = Long.MIN_VALUE;
    private long expired = Long.MIN_VALUE;

    /** {@code byTime}: whether there is an index by time. */
    Segments(long retention, long interval, boolean byTime) {
        this.retention = retention;
        this.interval = interval;
        this.byTime = byTime;
    }

    void open(Rows opened) {
        rows = opened;
        streamTime = NONE;
        last = Long.MIN_VALUE;
        expired = Long.MIN_VALUE;
        try (Cursor newest = rows.range(null, Keys.of(BY_TIME / 2, null, 0), false, true)) {
            Entry row = newest.next();
            if (row != null) {
                last = Keys.time(row.key(), 0);
            }
        }
    }

    long of(long time) {
        return Math.floorDiv(time, interval);
    }

    /**
     * Returns the earliest time whose rows are not expired. With an index by time, one more: a window whose retention is its size and grace is
     * emitted at the very time at which others are expired.
     */
    long timeMin() {
        return streamTime - retention + (byTime ? 0 : 1);
    }

    /** Advances the stream time, and returns whether a row of this time may be put. */
    boolean observe(long time) {
        streamTime = Math.max(streamTime, time);
        if (time < timeMin()) {
            return false;
        }
        last = Math.max(last, of(time));
        long live = of(timeMin());
        if (live > expired) {
            boolean first = expired == Long.MIN_VALUE;
            expired = live;
            if (!first || live <= last) {
                rows.expire(Keys.of(Long.MIN_VALUE, null, 0), Keys.of(live, null, 0));
                if (byTime) {
                    rows.expire(Keys.of(BY_TIME / 2, null, 0), Keys.of(BY_TIME + live, null, 0));
                }
            }
        }
        return true;
    }

    /** Returns the rows of the segments from one time to another, each segment's by {@code part}. */
    Cursor between(Reader reader, long from, long to, boolean reverse, LongFunction<Cursor> part) {
        if (last == Long.MIN_VALUE || from > to) {
            return Cursor.empty();
        }
        long first = of(from);
        long end = Math.min(of(to), last);
        if (end - first > 16) {
            // Few segments have rows: begin with the oldest that has.
            try (Cursor oldest = reader.range(Keys.of(first, null, 0), null, false, false)) {
                Entry row = oldest.next();
                first = row == null ? end + 1 : Keys.time(row.key(), 0);
            }
        }
        return Cursor.concat(first, end, reverse, part::apply);
    }
}
