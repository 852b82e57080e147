package org.apache.kafka.streams.state.internals;

import io.qpair.kafka.streams.QpairStores;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Kafka's own tests of window stores. */
public class QpairWindowStoreTest extends AbstractWindowBytesStoreTest {
    @Override
    <K, V> WindowStore<K, V> buildWindowStore(long retention, long size, boolean duplicates, Serde<K> keys, Serde<V> values) {
        return Stores.windowStoreBuilder(QpairStores.windowStore("windows", Duration.ofMillis(retention), Duration.ofMillis(size), duplicates), keys, values).build();
    }
}
