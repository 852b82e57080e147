package io.qpair.kafka.streams;

import java.time.Instant;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.state.VersionedRecordIterator;

/** qpair's versioned store with the methods of RocksDB's that Kafka's test of that store calls. */
public final class JudgedVersionedStore extends QpairVersionedStore {
    public JudgedVersionedStore(String name, String metricsScope, long retention, long segmentInterval) {
        super(name, retention);
    }

    /** Restores records as a task does that reads its changelog. */
    public void restoreBatch(List<ConsumerRecord<byte[], byte[]>> records) {
        records.forEach(record -> restore(record.key(), record.value(), record.timestamp()));
    }

    /** Returns the versions of a key that are valid within a range of time. */
    public VersionedRecordIterator<byte[]> get(Bytes key, long from, long to, ResultOrder order) {
        MultiVersionedKeyQuery<Bytes, byte[]> query = MultiVersionedKeyQuery.<Bytes, byte[]>withKey(key)
                .fromTime(Instant.ofEpochMilli(from)).toTime(Instant.ofEpochMilli(to));
        query = switch (order) {
            case ASCENDING -> query.withAscendingTimestamps();
            case DESCENDING, ANY -> query.withDescendingTimestamps();
        };
        return query(query, PositionBound.unbounded(), new QueryConfig(false)).getResult();
    }
}
