package io.qpair.kafka.streams;

import java.nio.ByteBuffer;
import java.util.Objects;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.WrappedStateStore;

/**
 * A window store. With {@code byTime}, which windows that are emitted on close ask for, an index by time has a row for each row, and ranges over all
 * keys are in the order of time; but not below a cache of Streams, which merges its rows with ours in the order of keys.
 */
class QpairWindowStore extends QpairStore implements WindowReads {
    private static final byte[] INDEXED = new byte[0];

    private final boolean duplicates;
    private final long windowSize;
    private final boolean byTime;
    private final Segments segments;
    private boolean cached;
    private int sequence;
    private Sensor dropped;

    QpairWindowStore(String name, long retention, long windowSize, boolean duplicates, long interval, boolean byTime) {
        this("window", name, retention, windowSize, duplicates, interval, byTime);
    }

    private QpairWindowStore(String format, String name, long retention, long windowSize, boolean duplicates, long interval, boolean byTime) {
        super(name, byTime ? format + " by time" : format);
        this.duplicates = duplicates;
        this.windowSize = windowSize;
        this.byTime = byTime;
        segments = new Segments(retention, interval, byTime);
    }

    private QpairWindowStore(QpairWindowStore of) {
        super(of.name(), "window");
        duplicates = of.duplicates;
        windowSize = of.windowSize;
        byTime = of.byTime;
        cached = of.cached;
        segments = of.segments;
    }

    /** A window store whose values begin with a time. */
    static final class Timestamped extends QpairWindowStore implements TimestampedBytesStore {
        Timestamped(String name, long retention, long windowSize, boolean duplicates, long interval, boolean byTime) {
            super("timestamped window", name, retention, windowSize, duplicates, interval, byTime);
        }
    }

    /** A window store whose values begin with headers and a time. */
    static final class WithHeaders extends QpairWindowStore implements TimestampedBytesStore, HeadersBytesStore {
        WithHeaders(String name, long retention, long windowSize, boolean duplicates, long interval, boolean byTime) {
            super("headers window", name, retention, windowSize, duplicates, interval, byTime);
        }
    }

    @Override
    public void init(StateStoreContext stateStoreContext, StateStore root) {
        dropped = Metrics.droppedRecords(stateStoreContext);
        cached = isCached(root);
        super.init(stateStoreContext, root);
    }

    /** Returns whether one of the wrappers of a store is the cache of Streams. */
    static boolean isCached(StateStore root) {
        StateStore at = root;
        while (at instanceof WrappedStateStore<?, ?, ?> wrapper) {
            if (wrapper.getClass().getSimpleName().equals("CachingWindowStore")) {
                return true;
            }
            at = wrapper.wrapped();
        }
        return false;
    }

    @Override
    public boolean inOrderOfTime() {
        return byTime && !cached;
    }

    private void putRow(byte[] key, byte[] value, long start, int number) {
        rows.put(row(key, start, number), value);
        if (byTime) {
            rows.put(Keys.ofTime(Segments.BY_TIME + segments.of(start), start, key, number), value == null ? null : INDEXED);
        }
    }

    @Override
    void opened() {
        segments.open(rows);
    }

    @Override
    public Reader reader() {
        checkOpen();
        return rows;
    }

    @Override
    public Segments segments() {
        return segments;
    }

    @Override
    public long windowSize() {
        return windowSize;
    }

    @Override
    public int sequence() {
        return sequence;
    }

    @Override
    void restore(byte[] key, byte[] value, long timestamp) {
        // The changelog's key: the record's key, the start, a sequence number.
        ByteBuffer tail = ByteBuffer.wrap(key, key.length - 12, 12);
        byte[] of = java.util.Arrays.copyOf(key, key.length - 12);
        long start = tail.getLong();
        if (segments.observe(start)) {
            putRow(of, value, start, tail.getInt());
        }
    }

    @Override
    public void put(Bytes key, byte[] value, long start) {
        Objects.requireNonNull(key, "key cannot be null");
        checkOpen();
        // A deletion cannot name one of several duplicates.
        if (value == null && duplicates) {
            return;
        }
        synchronized (position) {
            if (duplicates) {
                sequence = sequence + 1 & Integer.MAX_VALUE;
            }
            if (segments.observe(start)) {
                putRow(key.get(), value, start, sequence);
            } else {
                Metrics.drop(dropped, context);
            }
            updatePosition();
        }
    }

    // Declared since 4.4.
    public ReadOnlyWindowStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        checkOpen();
        return level == IsolationLevel.READ_COMMITTED ? (WindowStore<Bytes, byte[]>) committedStore() : this;
    }

    @Override
    StateStore committedStore() {
        QpairWindowStore all = this;
        return new QpairWindowStore(all) {
            @Override
            public Reader reader() {
                all.checkOpen();
                return all.rows.committed();
            }
        };
    }
}
