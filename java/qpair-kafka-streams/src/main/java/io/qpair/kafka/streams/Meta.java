package io.qpair.kafka.streams;

import io.qpair.Batch;
import io.qpair.Entry;
import io.qpair.Range;
import io.qpair.Table;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/** The rows of one state store in the table {@code meta}: offsets, position, incarnation, format and the mark of an open store. */
final class Meta {
    static final String INCARNATION = "i";
    static final String FORMAT = "f";
    static final String OPEN = "s";
    static final String POSITION = "p";
    private static final String OFFSET = "o";

    private final Table table;
    private final String prefix;

    Meta(Table table, String store) {
        this.table = table;
        prefix = store + '\0';
    }

    private byte[] key(String kind) {
        return (prefix + kind).getBytes(StandardCharsets.UTF_8);
    }

    byte[] get(String kind) {
        return table.get(key(kind));
    }

    void put(String kind, byte[] value) {
        table.put(key(kind), value);
    }

    void put(Batch batch, String kind, byte[] value) {
        batch.put(table, key(kind), value);
    }

    void delete(String kind) {
        table.delete(key(kind));
    }

    Long offset(TopicPartition partition) {
        byte[] value = get(OFFSET + partition);
        return value == null ? null : ByteBuffer.wrap(value).getLong();
    }

    /** Adds offsets to a batch. An empty map forgets all, a null value one. */
    void offsets(Batch batch, Map<TopicPartition, Long> offsets) {
        if (offsets.isEmpty()) {
            deleteAll(batch, OFFSET);
        }
        offsets.forEach((partition, offset) -> {
            byte[] key = key(OFFSET + partition);
            if (offset == null) {
                batch.delete(table, key);
            } else {
                batch.put(table, key, ByteBuffer.allocate(8).putLong(offset).array());
            }
        });
    }

    /** Adds the removal of all rows, or of one kind's, to a batch. */
    void deleteAll(Batch batch, String kind) {
        byte[] first = key(kind);
        try (Range range = table.range(first, null, false, false)) {
            while (range.hasNext()) {
                Entry row = range.next();
                if (row.key().length < first.length || !Arrays.equals(row.key(), 0, first.length, first, 0, first.length)) {
                    break;
                }
                batch.delete(table, row.key());
            }
        }
    }
}
