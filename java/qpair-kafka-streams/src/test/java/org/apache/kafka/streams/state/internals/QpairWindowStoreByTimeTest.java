package org.apache.kafka.streams.state.internals;

import io.qpair.kafka.streams.QpairDslStoreSuppliers;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.DslStoreFormat;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Kafka's own tests of window stores, over the one for windows that are emitted on close. */
public class QpairWindowStoreByTimeTest extends AbstractWindowBytesStoreTest {
    @Override
    <K, V> WindowStore<K, V> buildWindowStore(long retention, long size, boolean duplicates, Serde<K> keys, Serde<V> values) {
        DslWindowParams params = new DslWindowParams("windows", Duration.ofMillis(retention), Duration.ofMillis(size), duplicates,
                EmitStrategy.onWindowClose(), false, DslStoreFormat.PLAIN);
        return Stores.windowStoreBuilder(new QpairDslStoreSuppliers().windowStore(params), keys, values).build();
    }
}
