package io.qpair.kafka.streams;

import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Puts the state of a topology into qpair:
 * {@code dsl.store.suppliers.class=io.qpair.kafka.streams.QpairDslStoreSuppliers}.
 */
public final class QpairDslStoreSuppliers implements DslStoreSuppliers {
    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        return switch (params.dslStoreFormat()) {
            case PLAIN -> QpairStores.keyValueStore(params.name());
            case TIMESTAMPED -> QpairStores.timestampedKeyValueStore(params.name());
            case HEADERS -> QpairStores.keyValueStoreWithHeaders(params.name());
        };
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        throw new UnsupportedOperationException();
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        throw new UnsupportedOperationException();
    }
}
