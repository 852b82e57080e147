package io.qpair.kafka.streams;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;

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
}
