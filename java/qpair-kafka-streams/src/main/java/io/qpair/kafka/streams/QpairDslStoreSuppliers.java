package io.qpair.kafka.streams;

import org.apache.kafka.streams.DslStoreFormat;
import org.apache.kafka.streams.kstream.EmitStrategy;
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
        DslStoreFormat format = params.dslStoreFormat() == null ? DslStoreFormat.TIMESTAMPED : params.dslStoreFormat();
        // What is emitted on close is read by time.
        boolean byTime = params.emitStrategy() != null && params.emitStrategy().type() == EmitStrategy.StrategyType.ON_WINDOW_CLOSE;
        return switch (format) {
            case PLAIN -> QpairStores.windowStore(params.name(), params.retentionPeriod(), params.windowSize(), params.retainDuplicates(), byTime);
            case TIMESTAMPED ->
                QpairStores.timestampedWindowStore(params.name(), params.retentionPeriod(), params.windowSize(), params.retainDuplicates(), byTime);
            case HEADERS ->
                QpairStores.windowStoreWithHeaders(params.name(), params.retentionPeriod(), params.windowSize(), params.retainDuplicates(), byTime);
        };
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        return params.storeFormat() == DslStoreFormat.HEADERS ? QpairStores.sessionStoreWithHeaders(params.name(), params.retentionPeriod())
                : QpairStores.sessionStore(params.name(), params.retentionPeriod());
    }
}
