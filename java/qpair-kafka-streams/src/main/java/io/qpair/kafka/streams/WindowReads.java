package io.qpair.kafka.streams;

import io.qpair.Entry;
import java.util.Objects;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** The reads of a window store. */
interface WindowReads extends WindowStore<Bytes, byte[]> {
    Reader reader();

    Segments segments();

    long windowSize();

    int sequence();

    /** Returns whether ranges over all keys are in the order of time, by the index. */
    boolean inOrderOfTime();

    /** Returns the key of a window's row. */
    default byte[] row(byte[] key, long start, int sequence) {
        return Keys.of(segments().of(start), key, start, sequence);
    }

    private long start(byte[] row) {
        return Keys.time(row, row.length - 12);
    }

    private Windowed<Bytes> windowed(byte[] row) {
        long start = start(row);
        long end = start + windowSize();
        return new Windowed<>(Bytes.wrap(Keys.key(row, 8)), new TimeWindow(start, end < 0 ? Long.MAX_VALUE : end));
    }

    @Override
    default byte[] fetch(Bytes key, long start) {
        Objects.requireNonNull(key, "key cannot be null");
        Reader reader = reader();
        return start < segments().timeMin() ? null : reader.get(row(key.get(), start, sequence()));
    }

    private WindowStoreIterator<byte[]> one(Bytes key, long from, long to, boolean reverse) {
        byte[] bytes = Objects.requireNonNull(key, "key cannot be null").get();
        Reader reader = reader();
        long first = Math.max(from, segments().timeMin());
        Cursor rows = segments().between(reader, first, to, reverse, segment -> {
            byte[] low = Keys.of(segment, bytes, first);
            return reader.range(low, Keys.of(segment, bytes, to, -1), true, reverse);
        });
        return new Starts(new RowIterator<>(rows, this::start));
    }

    @Override
    default WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to) {
        return one(key, from, to, false);
    }

    @Override
    default WindowStoreIterator<byte[]> backwardFetch(Bytes key, long from, long to) {
        return one(key, from, to, true);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> many(Bytes keyFrom, Bytes keyTo, long from, long to, boolean reverse) {
        Reader reader = reader();
        long first = Math.max(from, segments().timeMin());
        if (Ranges.invalid(keyFrom, keyTo)) {
            return new RowIterator<>(Cursor.empty(), this::windowed);
        }
        Cursor rows = segments().between(reader, first, to, reverse, segment -> {
            byte[] low = Keys.of(segment, keyFrom == null ? null : keyFrom.get(), 0);
            byte[] high = keyTo == null ? Keys.of(segment + 1, null, 0) : Keys.after(Keys.of(segment, keyTo.get(), 0));
            return reader.range(low, high, false, reverse);
        });
        return new RowIterator<>(rows.filter(row -> within(row, first, to)), this::windowed);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> allKeys(long from, long to, boolean reverse) {
        if (!inOrderOfTime()) {
            return many(null, null, from, to, reverse);
        }
        Reader reader = reader();
        long first = Math.max(from, segments().timeMin());
        Cursor rows = segments().between(reader, first, to, reverse, segment -> {
            byte[] low = Keys.ofTime(Segments.BY_TIME + segment, first, null, 0);
            byte[] high = to == Long.MAX_VALUE ? Keys.of(Segments.BY_TIME + segment + 1, null, 0)
                    : Keys.ofTime(Segments.BY_TIME + segment, to + 1, null, 0);
            return reader.range(low, high, false, reverse).map(index -> {
                byte[] row = Keys.indexed(index.key(), segment);
                byte[] value = reader.get(row);
                // Removed since the index was read.
                return value == null ? null : new Entry(row, value);
            });
        });
        return new RowIterator<>(rows, this::windowed);
    }

    private boolean within(Entry row, long from, long to) {
        long start = start(row.key());
        return start >= from && start <= to;
    }

    @Override
    default KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return many(keyFrom, keyTo, from, to, false);
    }

    @Override
    default KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return many(keyFrom, keyTo, from, to, true);
    }

    @Override
    default KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long from, long to) {
        return allKeys(from, to, false);
    }

    @Override
    default KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long from, long to) {
        return allKeys(from, to, true);
    }

    @Override
    default KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return allKeys(Long.MIN_VALUE, Long.MAX_VALUE, false);
    }

    @Override
    default KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return allKeys(Long.MIN_VALUE, Long.MAX_VALUE, true);
    }

    /** Values by the starts of their windows. */
    record Starts(RowIterator<Long> rows) implements WindowStoreIterator<byte[]> {
        @Override
        public boolean hasNext() {
            return rows.hasNext();
        }

        @Override
        public Long peekNextKey() {
            return rows.peekNextKey();
        }

        @Override
        public KeyValue<Long, byte[]> next() {
            return rows.next();
        }

        @Override
        public void close() {
            rows.close();
        }
    }
}
