package io.qpair.kafka.streams;

import java.util.List;
import java.util.Objects;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;

/** A key-value store. */
class QpairKeyValueStore extends QpairStore implements KeyValueReads, KeyValueStore<Bytes, byte[]> {
    QpairKeyValueStore(String name) {
        this(name, "key-value");
    }

    private QpairKeyValueStore(String name, String format) {
        super(name, format);
    }

    /** A key-value store whose values begin with a time. */
    static final class Timestamped extends QpairKeyValueStore implements TimestampedBytesStore {
        Timestamped(String name) {
            super(name, "timestamped");
        }
    }

    /** A key-value store whose values begin with headers and a time. */
    static final class WithHeaders extends QpairKeyValueStore implements TimestampedBytesStore, HeadersBytesStore {
        WithHeaders(String name) {
            super(name, "headers");
        }
    }

    @Override
    public Reader reader() {
        checkOpen();
        return rows;
    }

    // Declared since 4.4.
    public ReadOnlyKeyValueStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        checkOpen();
        return level == IsolationLevel.READ_COMMITTED ? (KeyValueReads) () -> {
            checkOpen();
            return rows.committed();
        } : this;
    }

    @Override
    void restore(byte[] key, byte[] value, long timestamp) {
        rows.put(key, value);
    }

    @Override
    public void put(Bytes key, byte[] value) {
        Objects.requireNonNull(key, "key cannot be null");
        checkOpen();
        synchronized (position) {
            rows.put(key.get(), value);
            updatePosition();
        }
    }

    @Override
    public byte[] putIfAbsent(Bytes key, byte[] value) {
        byte[] before = get(key);
        if (before == null) {
            put(key, value);
        }
        return before;
    }

    @Override
    public void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        for (KeyValue<Bytes, byte[]> entry : entries) {
            put(entry.key, entry.value);
        }
    }

    @Override
    public byte[] delete(Bytes key) {
        byte[] before = get(key);
        put(key, null);
        return before;
    }

    @Override
    StateStore committedStore() {
        return new QpairKeyValueStore(name()) {
            @Override
            public Reader reader() {
                QpairKeyValueStore.this.checkOpen();
                return QpairKeyValueStore.this.rows.committed();
            }
        };
    }
}
