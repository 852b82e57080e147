package org.apache.kafka.streams.state.internals;

import io.qpair.kafka.streams.QpairStores;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;

/** Kafka's own tests of session stores. */
public class QpairSessionStoreTest extends AbstractSessionBytesStoreTest {
    @Override
    StoreType storeType() {
        // Decides only what the tests expect: findSessions(earliestEnd, latestEnd) is there.
        return StoreType.RocksDBTimeOrderedSessionStoreWithIndex;
    }

    @Override
    <K, V> SessionStore<K, V> buildSessionStore(long retention, Serde<K> keys, Serde<V> values) {
        return Stores.sessionStoreBuilder(QpairStores.sessionStore("sessions", Duration.ofMillis(retention)), keys, values).build();
    }
}
