package io.qpair.kafka.streams;

import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.VersionedKeyValueToBytesStoreAdapter;

/** Suppliers of state stores in qpair, the counterparts of those in {@link org.apache.kafka.streams.state.Stores}. */
public final class QpairStores {
    private QpairStores() {}

    /** Returns the supplier of a key-value store. */
    public static KeyValueBytesStoreSupplier keyValueStore(String name) {
        return new KeyValue(name) {
            @Override
            public KeyValueStore<Bytes, byte[]> get() {
                return new QpairKeyValueStore(name);
            }
        };
    }

    /** Returns the supplier of a key-value store whose values have a time. */
    public static KeyValueBytesStoreSupplier timestampedKeyValueStore(String name) {
        return new KeyValue(name) {
            @Override
            public KeyValueStore<Bytes, byte[]> get() {
                return new QpairKeyValueStore.Timestamped(name);
            }
        };
    }

    /** Returns the supplier of a key-value store whose values have a time and headers. */
    public static KeyValueBytesStoreSupplier keyValueStoreWithHeaders(String name) {
        return new KeyValueWithHeaders(name);
    }

    /** Returns the supplier of a window store. */
    public static WindowBytesStoreSupplier windowStore(String name, Duration retention, Duration size, boolean duplicates) {
        return windowStore(name, retention, size, duplicates, false);
    }

    /** Like the other method; with {@code byTime}, ranges over all keys are in the order of time where the store has no cache. */
    static WindowBytesStoreSupplier windowStore(String name, Duration retention, Duration size, boolean duplicates, boolean byTime) {
        return new Windows(name, retention.toMillis(), size.toMillis(), duplicates) {
            @Override
            public WindowStore<Bytes, byte[]> get() {
                return new QpairWindowStore(name(), retentionPeriod(), windowSize(), duplicates, segmentIntervalMs(), byTime);
            }
        };
    }

    /** Returns the supplier of a window store whose values have a time. */
    public static WindowBytesStoreSupplier timestampedWindowStore(String name, Duration retention, Duration size, boolean duplicates) {
        return timestampedWindowStore(name, retention, size, duplicates, false);
    }

    static WindowBytesStoreSupplier timestampedWindowStore(String name, Duration retention, Duration size, boolean duplicates, boolean byTime) {
        return new Windows(name, retention.toMillis(), size.toMillis(), duplicates) {
            @Override
            public WindowStore<Bytes, byte[]> get() {
                return new QpairWindowStore.Timestamped(name(), retentionPeriod(), windowSize(), duplicates, segmentIntervalMs(), byTime);
            }
        };
    }

    /** Returns the supplier of a window store whose values have a time and headers. */
    public static WindowBytesStoreSupplier windowStoreWithHeaders(String name, Duration retention, Duration size, boolean duplicates) {
        return windowStoreWithHeaders(name, retention, size, duplicates, false);
    }

    static WindowBytesStoreSupplier windowStoreWithHeaders(String name, Duration retention, Duration size, boolean duplicates, boolean byTime) {
        return new WindowsWithHeaders(name, retention.toMillis(), size.toMillis(), duplicates, byTime);
    }

    /** Returns the supplier of a session store. */
    public static SessionBytesStoreSupplier sessionStore(String name, Duration retention) {
        return new Sessions(name, retention.toMillis());
    }

    /** Returns the supplier of a session store whose values have headers. */
    public static SessionBytesStoreSupplier sessionStoreWithHeaders(String name, Duration retention) {
        return new SessionsWithHeaders(name, retention.toMillis());
    }

    /** Returns the supplier of a versioned key-value store. */
    public static VersionedBytesStoreSupplier versionedKeyValueStore(String name, Duration historyRetention) {
        return new Versioned(name, historyRetention.toMillis());
    }

    private static long interval(long retention) {
        return Math.max(retention / 2, 60_000);
    }

    private abstract static class KeyValue implements KeyValueBytesStoreSupplier {
        private final String name;

        KeyValue(String name) {
            this.name = java.util.Objects.requireNonNull(name, "name cannot be null");
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public String metricsScope() {
            return QpairStore.METRICS_SCOPE;
        }
    }

    private static final class KeyValueWithHeaders extends KeyValue implements HeadersBytesStoreSupplier {
        KeyValueWithHeaders(String name) {
            super(name);
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return new QpairKeyValueStore.WithHeaders(name());
        }
    }

    private abstract static class Windows implements WindowBytesStoreSupplier {
        private final String name;
        private final long retention;
        private final long size;
        private final boolean duplicates;

        Windows(String name, long retention, long size, boolean duplicates) {
            if (retention < 0 || size < 0 || size > retention) {
                throw new IllegalArgumentException("The window store " + name + " has windows of " + size + " ms and a retention of " + retention
                        + " ms: choose a retention that is not shorter than a window");
            }
            this.name = java.util.Objects.requireNonNull(name, "name cannot be null");
            this.retention = retention;
            this.size = size;
            this.duplicates = duplicates;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public String metricsScope() {
            return QpairStore.METRICS_SCOPE;
        }

        @Override
        public long segmentIntervalMs() {
            return interval(retention);
        }

        @Override
        public long windowSize() {
            return size;
        }

        @Override
        public boolean retainDuplicates() {
            return duplicates;
        }

        @Override
        public long retentionPeriod() {
            return retention;
        }
    }

    private static final class WindowsWithHeaders extends Windows implements HeadersBytesStoreSupplier {
        private final boolean byTime;

        WindowsWithHeaders(String name, long retention, long size, boolean duplicates, boolean byTime) {
            super(name, retention, size, duplicates);
            this.byTime = byTime;
        }

        @Override
        public WindowStore<Bytes, byte[]> get() {
            return new QpairWindowStore.WithHeaders(name(), retentionPeriod(), windowSize(), retainDuplicates(), segmentIntervalMs(), byTime);
        }
    }

    private static class Sessions implements SessionBytesStoreSupplier {
        private final String name;
        private final long retention;

        Sessions(String name, long retention) {
            if (retention < 0) {
                throw new IllegalArgumentException("The session store " + name + " has a negative retention of " + retention + " ms");
            }
            this.name = java.util.Objects.requireNonNull(name, "name cannot be null");
            this.retention = retention;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public String metricsScope() {
            return QpairStore.METRICS_SCOPE;
        }

        @Override
        public long segmentIntervalMs() {
            return interval(retention);
        }

        @Override
        public long retentionPeriod() {
            return retention;
        }

        @Override
        public SessionStore<Bytes, byte[]> get() {
            return new QpairSessionStore(name, retention, segmentIntervalMs());
        }
    }

    private static final class SessionsWithHeaders extends Sessions implements HeadersBytesStoreSupplier {
        SessionsWithHeaders(String name, long retention) {
            super(name, retention);
        }

        @Override
        public SessionStore<Bytes, byte[]> get() {
            return new QpairSessionStore.WithHeaders(name(), retentionPeriod(), segmentIntervalMs());
        }
    }

    private static final class Versioned extends KeyValue implements VersionedBytesStoreSupplier {
        private final long retention;

        Versioned(String name, long retention) {
            super(name);
            if (retention < 0) {
                throw new IllegalArgumentException("The versioned store " + name + " has a negative history retention of " + retention + " ms");
            }
            this.retention = retention;
        }

        @Override
        public long historyRetentionMs() {
            return retention;
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return new VersionedKeyValueToBytesStoreAdapter(new QpairVersionedStore(name(), retention));
        }
    }
}
