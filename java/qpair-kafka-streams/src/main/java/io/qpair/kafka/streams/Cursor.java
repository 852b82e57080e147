package io.qpair.kafka.streams;

import io.qpair.Entry;
import java.util.Iterator;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.UnaryOperator;

/** Rows one after the other. */
interface Cursor extends AutoCloseable {
    /** Returns the next row, or null after the last one. */
    Entry next();

    @Override
    void close();

    /** Returns whether the store has closed the cursor. */
    default boolean isClosed() {
        return false;
    }

    /** Returns a cursor without rows. */
    static Cursor empty() {
        return of(java.util.Collections.emptyIterator());
    }

    static Cursor of(Iterator<Entry> rows) {
        return new Cursor() {
            @Override
            public Entry next() {
                return rows.hasNext() ? rows.next() : null;
            }

            @Override
            public void close() {}
        };
    }

    default Cursor filter(Predicate<Entry> wanted) {
        return map(row -> wanted.test(row) ? row : null);
    }

    /** Returns what a function makes of the rows, without those of which it makes null. */
    default Cursor map(UnaryOperator<Entry> made) {
        Cursor all = this;
        return new Cursor() {
            @Override
            public Entry next() {
                for (Entry row = all.next(); row != null; row = all.next()) {
                    Entry other = made.apply(row);
                    if (other != null) {
                        return other;
                    }
                }
                return null;
            }

            @Override
            public boolean isClosed() {
                return all.isClosed();
            }

            @Override
            public void close() {
                all.close();
            }
        };
    }

    /** Returns the rows of the numbers from {@code first} to {@code last}, in steps of 1 or -1, each part opened when the iteration gets there. */
    static Cursor concat(long first, long last, boolean reverse, Function<Long, Cursor> part) {
        return new Cursor() {
            private long at = reverse ? last : first;
            private Cursor now;

            @Override
            public Entry next() {
                while (!isClosed()) {
                    if (now == null) {
                        if (first > last || at < first || at > last) {
                            return null;
                        }
                        now = part.apply(at);
                        at += reverse ? -1 : 1;
                    }
                    Entry row = now.next();
                    if (row != null) {
                        return row;
                    }
                    now.close();
                    now = null;
                }
                return null;
            }

            @Override
            public boolean isClosed() {
                return now != null && now.isClosed();
            }

            @Override
            public void close() {
                if (now != null) {
                    now.close();
                }
                at = reverse ? first - 1 : last + 1;
                now = null;
            }
        };
    }
}
