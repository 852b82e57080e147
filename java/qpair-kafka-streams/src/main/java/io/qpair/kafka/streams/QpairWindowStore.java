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

/** A window store. */
class QpairWindowStore extends QpairStore implements WindowReads {
    private final boolean duplicates;
    private final long windowSize;
    private final Segments segments;
    private int sequence;
    private Sensor dropped;

    QpairWindowStore(String name, long retention, long windowSize, boolean duplicates, long interval) {
        this("window", name, retention, windowSize, duplicates, interval);
    }

    private QpairWindowStore(String format, String name, long retention, long windowSize, boolean duplicates, long interval) {
        super(name, format);
        this.duplicates = duplicates;
        this.windowSize = windowSize;
        segments = new Segments(retention, interval);
    }

    private QpairWindowStore(QpairWindowStore of) {
        super(of.name(), "window");
        duplicates = of.duplicates;
        windowSize = of.windowSize;
        segments = of.segments;
    }

    /** A window store whose values begin with a time. */
    static final class Timestamped extends QpairWindowStore implements TimestampedBytesStore {
        Timestamped(String name, long retention, long windowSize, boolean duplicates, long interval) {
            super("timestamped window", name, retention, windowSize, duplicates, interval);
        }
    }

    /** A window store whose values begin with headers and a time. */
    static final class WithHeaders extends QpairWindowStore implements TimestampedBytesStore, HeadersBytesStore {
        WithHeaders(String name, long retention, long windowSize, boolean duplicates, long interval) {
            super("headers window", name, retention, windowSize, duplicates, interval);
        }
    }

    @Override
    public void init(StateStoreContext stateStoreContext, StateStore root) {
        dropped = Metrics.droppedRecords(stateStoreContext);
        super.init(stateStoreContext, root);
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
            rows.put(row(of, start, tail.getInt()), value);
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
                rows.put(row(key.get(), start, sequence), value);
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
