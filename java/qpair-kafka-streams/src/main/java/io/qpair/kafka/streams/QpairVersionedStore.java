package io.qpair.kafka.streams;

import io.qpair.Entry;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/**
 * A versioned key-value store: a row for each version of a key, deletions too, and a queue of versions that expire.
 *
 * <p>A version is valid until the time of the next one. What has ceased to be valid before the history retention is returned by no read, and is
 * removed by way of the queue.
 */
class QpairVersionedStore extends QpairStore implements VersionedKeyValueStore<Bytes, byte[]> {
    /** The first 8 bytes of a version's key, and of the queue's keys. */
    private static final long VERSION = 0;
    private static final long QUEUE = 1;
    private static final byte DELETED = 0;
    private static final byte VALUE = 1;

    private final long retention;
    private final long interval;
    private volatile long streamTime = -1;
    private long expired = Long.MIN_VALUE;
    private Sensor dropped;

    QpairVersionedStore(String name, long retention) {
        super(name, "versioned");
        this.retention = retention;
        interval = Math.max(retention / 3, 2_000);
    }

    Reader reader() {
        checkOpen();
        return rows;
    }

    /** Returns the stream time that reads are as of. */
    long streamTime() {
        return streamTime;
    }

    @Override
    public void init(StateStoreContext stateStoreContext, StateStore root) {
        dropped = Metrics.droppedRecords(stateStoreContext);
        super.init(stateStoreContext, root);
    }

    @Override
    void opened() {
        streamTime = -1;
        expired = Long.MIN_VALUE;
    }

    private static long time(byte[] row) {
        return Keys.time(row, row.length - 8);
    }

    private static byte[] value(Entry row) {
        return row.value()[0] == DELETED ? null : Arrays.copyOfRange(row.value(), 1, row.value().length);
    }

    /** Returns the newest version of a time or before it, or null. */
    private static Entry floor(Reader reader, byte[] key, long time) {
        try (Cursor versions = reader.range(Keys.of(VERSION, key, Long.MIN_VALUE), Keys.of(VERSION, key, time), true, true)) {
            return versions.next();
        }
    }

    /** Returns the time of the first version after a time, or the code for none. */
    private static long nextTime(Reader reader, byte[] key, long time) {
        try (Cursor versions = reader.range(Keys.of(VERSION, key, time), Keys.of(VERSION, key, Long.MAX_VALUE), true, false)) {
            Entry row = versions.next();
            if (row != null && time(row.key()) == time) {
                row = versions.next();
            }
            return row == null ? PUT_RETURN_CODE_VALID_TO_UNDEFINED : time(row.key());
        }
    }

    private long putVersion(byte[] key, byte[] value, long time) {
        long next = nextTime(rows, key, time);
        Entry before = floor(rows, key, time - 1);
        byte[] stored = new byte[value == null ? 1 : value.length + 1];
        stored[0] = value == null ? DELETED : VALUE;
        if (value != null) {
            System.arraycopy(value, 0, stored, 1, value.length);
        }
        rows.put(Keys.of(VERSION, key, time), stored);
        if (before != null) {
            expireAt(key, time(before.key()), time);
        }
        if (next != PUT_RETURN_CODE_VALID_TO_UNDEFINED) {
            expireAt(key, time, next);
        } else if (value == null) {
            expireAt(key, time, time);
        }
        expire();
        return next;
    }

    /** Notes that a version is not valid from a time on. */
    private void expireAt(byte[] key, long version, long validTo) {
        byte[] head = Keys.of(QUEUE, null, 0);
        byte[] tail = Keys.of(Math.floorDiv(validTo, interval), key, version);
        byte[] row = Arrays.copyOf(head, head.length + tail.length);
        System.arraycopy(tail, 0, row, head.length, tail.length);
        rows.put(row, new byte[0]);
    }

    private void expire() {
        long live = Math.floorDiv(streamTime - retention, interval);
        if (live <= expired) {
            return;
        }
        expired = live;
        byte[] from = Keys.of(QUEUE, null, 0);
        byte[] to = Arrays.copyOf(from, 16);
        Keys.writeTime(to, 8, live);
        List<byte[]> gone = new ArrayList<>();
        try (Cursor queue = rows.range(from, to, false, false)) {
            for (Entry row = queue.next(); row != null; row = queue.next()) {
                gone.add(row.key());
            }
        }
        for (byte[] row : gone) {
            byte[] key = Keys.key(row, 16);
            long version = time(row);
            Entry stored = floor(rows, key, version);
            boolean there = stored != null && time(stored.key()) == version;
            // A deletion's time may have got a value since.
            if (there && (value(stored) == null || nextTime(rows, key, version) != PUT_RETURN_CODE_VALID_TO_UNDEFINED)) {
                rows.put(Keys.of(VERSION, key, version), null);
            }
            rows.put(row, null);
        }
    }

    @Override
    void restore(byte[] key, byte[] value, long timestamp) {
        if (timestamp >= streamTime - retention) {
            streamTime = Math.max(streamTime, timestamp);
            putVersion(key, value, timestamp);
        }
    }

    @Override
    public long put(Bytes key, byte[] value, long timestamp) {
        Objects.requireNonNull(key, "key cannot be null");
        checkOpen();
        synchronized (position) {
            long validTo = PUT_RETURN_CODE_NOT_PUT;
            if (timestamp < streamTime - retention) {
                Metrics.drop(dropped, context);
            } else {
                streamTime = Math.max(streamTime, timestamp);
                validTo = putVersion(key.get(), value, timestamp);
            }
            updatePosition();
            return validTo;
        }
    }

    @Override
    public VersionedRecord<byte[]> delete(Bytes key, long timestamp) {
        Objects.requireNonNull(key, "key cannot be null");
        checkOpen();
        synchronized (position) {
            VersionedRecord<byte[]> before = timestamp < streamTime - retention ? null : get(key, timestamp);
            put(key, null, timestamp);
            return before;
        }
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key) {
        Entry newest = floor(reader(), Objects.requireNonNull(key, "key cannot be null").get(), Long.MAX_VALUE);
        byte[] value = newest == null ? null : value(newest);
        return value == null ? null : new VersionedRecord<>(value, time(newest.key()));
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key, long asOf) {
        Objects.requireNonNull(key, "key cannot be null");
        Reader reader = reader();
        Entry found = floor(reader, key.get(), asOf);
        byte[] value = found == null ? null : value(found);
        return value == null ? null : record(reader, key.get(), found, value, asOf);
    }

    private VersionedRecord<byte[]> record(Reader reader, byte[] key, Entry found, byte[] value, long asOf) {
        long next = nextTime(reader, key, time(found.key()));
        if (next == PUT_RETURN_CODE_VALID_TO_UNDEFINED) {
            return new VersionedRecord<>(value, time(found.key()));
        }
        return asOf < streamTime() - retention ? null : new VersionedRecord<>(value, time(found.key()), next);
    }

    private List<VersionedRecord<byte[]>> versions(byte[] key, long from, long to, ResultOrder order) {
        List<VersionedRecord<byte[]>> found = new ArrayList<>();
        long validTo = Long.MAX_VALUE;
        boolean newest = true;
        boolean old = to < streamTime() - retention;
        try (Cursor versions = reader().range(Keys.of(VERSION, key, Long.MIN_VALUE), Keys.of(VERSION, key, Long.MAX_VALUE), true, true)) {
            for (Entry row = versions.next(); row != null && validTo > from && !(old && !newest); row = versions.next()) {
                long time = time(row.key());
                byte[] value = value(row);
                if (value != null && time <= to) {
                    found.add(newest ? new VersionedRecord<>(value, time) : new VersionedRecord<>(value, time, validTo));
                }
                newest = false;
                validTo = time;
            }
        }
        if (order == ResultOrder.ASCENDING) {
            java.util.Collections.reverse(found);
        }
        return found;
    }

    @Override
    @SuppressWarnings("unchecked")
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        if (!(query instanceof MultiVersionedKeyQuery)) {
            return super.query(query, bound, config);
        }
        MultiVersionedKeyQuery<Bytes, byte[]> asked = (MultiVersionedKeyQuery<Bytes, byte[]>) query;
        synchronized (position) {
            QueryResult<R> result;
            if (!StoreQueryUtils.isPermitted(position, bound, context.taskId().partition())) {
                result = QueryResult.notUpToBound(position, bound, context.taskId().partition());
            } else {
                QpairVersionedStore store = (QpairVersionedStore) Isolation.of(this, config);
                List<VersionedRecord<byte[]>> found = store.versions(asked.key().get(), asked.fromTime().map(java.time.Instant::toEpochMilli).orElse(Long.MIN_VALUE),
                        asked.toTime().map(java.time.Instant::toEpochMilli).orElse(Long.MAX_VALUE), asked.resultOrder());
                result = QueryResult.forResult((R) new Versions(found.iterator()));
            }
            result.setPosition(position.copy());
            return result;
        }
    }

    private record Versions(java.util.Iterator<VersionedRecord<byte[]>> found) implements VersionedRecordIterator<byte[]> {
        @Override
        public boolean hasNext() {
            return found.hasNext();
        }

        @Override
        public VersionedRecord<byte[]> next() {
            return found.next();
        }

        @Override
        public void close() {}
    }

    // Declared since 4.4.
    public VersionedKeyValueStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        checkOpen();
        return level == IsolationLevel.READ_COMMITTED ? (QpairVersionedStore) committedStore() : this;
    }

    @Override
    StateStore committedStore() {
        QpairVersionedStore all = this;
        return new QpairVersionedStore(all.name(), all.retention) {
            @Override
            Reader reader() {
                all.checkOpen();
                return all.rows.committed();
            }

            @Override
            long streamTime() {
                return all.streamTime;
            }
        };
    }
}
